"""Records one iteration of any PyTorch model as a `CapturedStep`, with no memory allocated and no GPU."""
