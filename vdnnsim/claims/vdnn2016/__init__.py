"""The claims of Rhu et al. (2016), vDNN: their replays on a Titan X and the metrics that are computed of them."""
