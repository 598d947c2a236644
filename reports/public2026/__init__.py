"""The page on what others measured on GPUs: errors by source and card, a picture for each quantity."""
