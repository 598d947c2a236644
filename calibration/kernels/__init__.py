"""Kernels: each phase of each layer as PyTorch or cuDNN computes it, into memory of the caller.

Begin with `interface`; `pytorch` is the library of PyTorch's kernels, with a module for each kind of layer, and
`cudnn_library` that of cuDNN's plans, which `cudnn_graphs` finds. It imports the interface of `calibration.devices`;
`measure` and `executor` import it.
"""
