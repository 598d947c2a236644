"""Memory of a PyTorch process beside its tensors, on GPU and host: context, cuBLAS, cuDNN, DDP, pinned blocks.

    context            CUDA's context, with the kernels that were loaded: `gpu.context` of a profile, outside of every
                       pool; `gpu.handle` for each further handle of a system of the papers
    cuBLAS             a workspace for each handle and stream, allocated by PyTorch at the first product there and kept;
                       each thread has a handle, and backward has a thread of its own. cublasLt, which adds the bias of
                       a linear layer, shares it
    cuDNN              the workspace of each convolution while it runs (`vdnnsim.cost.pytorch_workspace`, or the table
                       of a profile); where it searches, more in the first iteration (`vdnnsim.plans.device_requests`)
    DDP                buckets of gradients, a second copy or the gradients themselves (`vdnnsim.plans.buckets`)
    NCCL               for each group and each of its channels the buffers that the neighbour in a ring writes: 512 KiB
                       for LL, 4.69 MiB for LL128 and 4 MiB for Simple; those of trees, NVLS and sends come on top and
                       are left out, as is the code of its kernels
    pinned memory      blocks of powers of two, cached when freed, each for requests of its own size

Sources: github.com/pytorch/pytorch, aten/src/ATen/cuda/CublasHandlePool.cpp (parseChosenWorkspaceSize, `:4096:2:16:8`,
32 MiB on compute capability 9.0) and aten/src/ATen/core/CachingHostAllocator.h (PowerOf2Ceil); both sizes of cuBLAS's
workspace were seen in PyTorch 2.14 on pretended GPUs. github.com/NVIDIA/nccl, src/init.cc (DEFAULT_LL_BUFFSIZE,
DEFAULT_LL128_BUFFSIZE, DEFAULT_BUFFSIZE) and src/include/device.h. That 33 GiB become 64: github.com/vllm-project/vllm
issue 48436.
"""

from collections import Counter
from typing import Final

from vdnnsim.units import KIB, MIB

CUBLAS_BYTES: Final = 2 * 4096 * KIB + 8 * 16 * KIB
"""8,519,680 B, for each handle and stream."""
CUBLAS_HOPPER_BYTES: Final = 32 * MIB
_HOPPER: Final = (9, 0)
_NCCL_CHANNEL_BYTES: Final = 8 * 512 * 8 * 16 + 120 * 640 * 8 * 8 + 4 * MIB
"""Lines or elements of a thread x threads x steps x bytes, of LL and LL128, and Simple."""


def cublas_workspace_bytes(compute_capability: tuple[int, int]) -> int:
    """Return cuBLAS's workspace in PyTorch for a handle and a stream, unless CUBLAS_WORKSPACE_CONFIG is set."""
    return CUBLAS_HOPPER_BYTES if compute_capability == _HOPPER else CUBLAS_BYTES


def nccl_bytes(channels: int) -> int:
    """Return the GPU memory of the rings of one process group."""
    return channels * _NCCL_CHANNEL_BYTES


def pinned_block_bytes(nbytes: int) -> int:
    """Return the block of pinned memory that PyTorch takes for a request: the next power of two."""
    return 1 << (nbytes - 1).bit_length() if nbytes else 0


class PinnedBlocks:
    """Pinned memory of PyTorch's CachingHostAllocator, from the start of a process.

    Attributes:
        taken_bytes: in blocks in use and cached ones.
    """

    def __init__(self) -> None:
        self._kept = Counter[int]()
        self.taken_bytes = 0

    def missing_bytes(self, *sizes: int) -> int:
        """Return the host memory that requests would add together: each cached block serves one of its size."""
        blocks = Counter(map(pinned_block_bytes, sizes))
        return sum(size * max(0, count - self._kept[size]) for size, count in blocks.items())

    def take(self, nbytes: int) -> None:
        self.taken_bytes += self.missing_bytes(nbytes)
        size = pinned_block_bytes(nbytes)
        self._kept[size] = max(0, self._kept[size] - 1)

    def free(self, nbytes: int) -> None:
        self._kept[pinned_block_bytes(nbytes)] += 1
