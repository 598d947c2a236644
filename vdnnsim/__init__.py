"""vdnnsim: a discrete-event simulator of memory management for training deep networks on GPUs."""

__version__ = "0.1.0"
