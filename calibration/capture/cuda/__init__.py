"""Rules for operations that PyTorch dispatches otherwise on CUDA than on the CPU, by kind of operation.

Each names the file of PyTorch that it follows; `tests/pretend/test_capture_rules.py` compares them to PyTorch's
dispatcher on a pretended GPU.
"""
