"""The claims of Rhu et al. (2016), vDNN: replays on one GPU, its figures, its report."""
