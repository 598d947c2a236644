"""The page on Kim et al. (2018), several GPUs that swap: its tables, other readings, pictures of both servers."""
