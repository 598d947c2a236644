"""Kernels: each phase of each layer as PyTorch or cuDNN computes it, into memory that the caller gives."""
