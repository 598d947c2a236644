"""A pretended GPU: PyTorch's CUDA build on a CUDA runtime of our own, on a machine without a GPU.

    python -m calibration.pretend --hardware h100_sxm -- python train.py

All host code of PyTorch is real: allocators, streams, events, pinned memory, autograd. Kernels compute nothing and last
for predicted times. `runtime/` has the runtime, in C; `build` compiles it, `card` makes a GPU of a hardware profile,
`environment` sets the variables of a process, `session` runs a user's command and `report` makes tables and sentences
of its record. `inside/` is loaded into that command, and imports nothing of vdnnsim.
"""
