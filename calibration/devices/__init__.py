"""The devices that work can be given to: a CUDA GPU, and a CPU that behaves like one."""
