"""The named choices of a scenario that concern memory."""

from enum import Enum


class MemoryModel(Enum):
    """How the memory pool of the GPU places buffers.

    `ideal` counts bytes rounded up to the granule and never fragments: what the papers add up, and the default.
    `best_fit` places each request online in the smallest free piece, as cnmem does for vDNN.
    `planned` assigns addresses ahead with the whole plan in view, which a static plan allows.
    `pytorch` places online as PyTorch's CUDA caching allocator does, in segments that it keeps.
    `pytorch_expandable` places as that allocator does under `expandable_segments:True`, in one segment that grows.
    `cuda_malloc` makes every buffer an allocation of its own, as Caffe does: the driver hands out blocks of 2 MiB.
    `mxnet` plans which buffers share a storage as MXNet does, and allocates every storage by itself.
    `tensorflow` places online as TensorFlow's BFC allocator does, in regions that it doubles and keeps.
    `cuda_vmm` maps blocks of 2 MiB behind the addresses of each buffer, so that extents of it can be given back.
    """

    IDEAL = "ideal"
    BEST_FIT = "best_fit"
    PLANNED = "planned"
    PYTORCH = "pytorch"
    PYTORCH_EXPANDABLE = "pytorch_expandable"
    CUDA_MALLOC = "cuda_malloc"
    MXNET = "mxnet"
    TENSORFLOW = "tensorflow"
    CUDA_VMM = "cuda_vmm"

    @property
    def is_of_pytorch(self) -> bool:
        """Whether it is PyTorch's, and so is what else a process holds (`vdnnsim.memory.process`)."""
        return self in (MemoryModel.PYTORCH, MemoryModel.PYTORCH_EXPANDABLE)


class PinnedMemory(Enum):
    """When host memory for offloaded maps is pinned.

    `arena` pins one region before the first iteration; an iteration pays nothing, and this is the default, for the
    overheads that the vDNN paper reports leave no room for anything else. `per_offload` calls cudaMallocHost at every
    offload, as the paper's text has it (III-B), and the host pays for it each time.
    """

    ARENA = "arena"
    PER_OFFLOAD = "per_offload"
