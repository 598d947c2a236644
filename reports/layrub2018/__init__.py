"""The page on Jin et al. (2018), Layrub: its tables and figures, other readings."""
