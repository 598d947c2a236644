"""Published measurements on GPUs compared with the replay: step times, operators, peaks of memory, largest batches."""
