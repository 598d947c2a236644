"""Devices: streams, events and counted memory of a CUDA GPU, and of a CPU behind the same interface.

Begin with `interface`; `cuda` and `cpu` implement it, `opening` opens one by name, `provenance` lists the hardware and
software of a measurement, `arithmetic` sets PyTorch's precision. It imports nothing else of calibration.
"""
