"""A pretended GPU: PyTorch's CUDA build on a CUDA runtime of our own, on a machine without a GPU.

    python -m calibration.pretend --hardware h100_sxm -- python train.py

Of PyTorch everything is real that runs on the host: allocators, streams, events, pinned memory, autograd. Kernels
compute nothing and take as long as they are said to. `runtime/` holds the runtime, in C; `build` compiles it, `card`
makes a GPU of a hardware profile, `environment` sets the variables of a process, `session` runs a user's command and
`report` says what it took. `inside/` is loaded into that command, and imports nothing of vdnnsim.
"""
