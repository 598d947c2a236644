"""The claims of Kim et al. (2018), several GPUs that swap: replays on its servers, its tables, its report."""
