"""What PyTorch does with CUDA tensors where it does otherwise with those of the CPU, by kind of operation.

Each rule names the file of PyTorch that it follows; `tests/pretend/test_capture_rules.py` holds all of them against
PyTorch's own dispatcher on a pretended GPU.
"""
