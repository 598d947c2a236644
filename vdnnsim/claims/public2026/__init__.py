"""What others measured on GPUs and published, held against the replay: step times, peaks of memory, what fits."""
