"""The page on Rhu et al. (2016), vDNN: ten figures, other readings, sensitivity to the parameters of the machine."""
