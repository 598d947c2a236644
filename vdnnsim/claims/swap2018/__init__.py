"""The claims of Kim et al. (2018), several GPUs that swap: their replays on its servers."""
