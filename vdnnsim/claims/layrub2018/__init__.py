"""The claims of Jin et al. (2018), Layrub: their replays on two machines, and the pace that its tables state."""
