"""Devices: streams, marks in time and counted memory, of a CUDA GPU and of a CPU that behaves like one.

Begin with `interface`; `cuda` and `cpu` implement it, `opening` opens one by name, `provenance` says what a measurement
was made with, `arithmetic` sets how PyTorch computes meanwhile. It imports nothing else of calibration.
"""
