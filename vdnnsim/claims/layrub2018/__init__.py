"""The claims of Jin et al. (2018), Layrub: replays on its two machines, its tables, its report."""
