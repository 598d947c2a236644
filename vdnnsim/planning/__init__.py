"""Search and bounds: the fastest schedule that fits a memory, and how near to the best possible it is."""
