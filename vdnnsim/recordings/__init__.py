"""Readers of what users recorded of their runs; nothing in such a file is ever executed, and PyTorch is not needed."""
