"""CUDA's choice of operators for fake tensors of the CPU.

Fake tensors of CUDA abort the process where PyTorch was built without CUDA, or there is no GPU.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import optimizer
from torch.utils import _foreach_utils
from torch.utils._pytree import tree_leaves

from calibration.capture.cuda import attention, normalization, pointwise, recurrent
from calibration.capture.cuda.autocast import autocast_as_cuda
from calibration.capture.cuda.rules import Gpu
from calibration.capture.schemas import OperatorMode, arguments_of

_COMPOSITES: Final = {
    **attention.COMPOSITES,
    **normalization.COMPOSITES,
    **pointwise.COMPOSITES,
    **recurrent.COMPOSITES,
}
_KERNELS: Final = {**normalization.KERNELS, **pointwise.KERNELS, **recurrent.KERNELS}
_MULTIPROCESSORS: Final = {(7, 0): 80, (7, 5): 40, (8, 0): 108, (8, 6): 82, (8, 9): 128, (9, 0): 132, (12, 0): 170}
_THREADS: Final = {(7, 5): 1024, (8, 6): 1536, (8, 9): 1536, (12, 0): 1536}
"""Resident threads of one multiprocessor, where not 2048 (CUDA C++ Programming Guide, compute capabilities)."""


def multiprocessors_of(compute_capability: tuple[int, int]) -> tuple[int, int]:
    """Return how many the largest common card of a capability has, and the resident threads of each."""
    return _MULTIPROCESSORS.get(compute_capability, 108), _THREADS.get(compute_capability, 2048)


@contextmanager
def as_cuda(compute_capability: tuple[int, int]) -> Iterator[Gpu]:
    """Dispatch for fake tensors of the CPU as for those of CUDA.

    Results have CUDA's shapes and types, so saved tensors and live memory have the sizes of a GPU. Real tensors fail:
    the CPU has no kernels for operators of CUDA.

    Enter modes that should see the operators within this one, and `FakeTensorMode` outside of it. Optimizers use
    `foreach` by default, and may be `fused`. Autocast of CPU and CUDA are the same. All threads are affected. Yields
    the GPU, which notes what its rules are asked for; cuDNN's random states on it have the size for the threads of the
    largest common card of its compute capability.
    """
    multiprocessors, threads = multiprocessors_of(compute_capability)
    gpu = Gpu(compute_capability, multiprocessors * threads)
    with (
        torch.library._scoped_library("aten", "IMPL") as library,  # noqa: SLF001 - of torch/library.py, as documented
        autocast_as_cuda(),
        _foreach_by_default(),
        _CudaResults(gpu),
    ):
        for operator, rule in _COMPOSITES.items():
            library.impl(operator, partial(rule, gpu), "AutogradCPU")
        yield gpu


class _CudaResults(OperatorMode):  # type: ignore[no-untyped-call]
    """Makes results of CUDA's kernels where the CPU's have other shapes or types, or do not exist."""

    def __init__(self, gpu: Gpu) -> None:
        super().__init__()
        self._gpu = gpu

    def dispatch(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        # In inference mode, autograd does not decompose composites before.
        if rule := _COMPOSITES.get(func):
            return rule(self._gpu, *args, **kwargs)
        kernel = _KERNELS.get(func)
        if kernel is not None and any(isinstance(each, FakeTensor) for each in tree_leaves((args, kwargs))):
            results = kernel(arguments_of(func, args, kwargs))
            if results is not None:
                return results
        return self.in_mode_below(func, args, kwargs)


@contextmanager
def _foreach_by_default() -> Iterator[None]:
    """Let optimizers and gradient clipping use `foreach` by default (torch/optim/optimizer.py)."""
    named = "_get_foreach_kernels_supported_devices"
    supported = getattr(_foreach_utils, named)
    kinds = optimizer._foreach_supported_types  # noqa: SLF001 - PyTorch has no public one
    for module in (_foreach_utils, optimizer):
        setattr(module, named, lambda: [*supported(), "cpu"])
    kinds.append(FakeTensor)
    try:
        yield
    finally:
        kinds.remove(FakeTensor)
        for module in (_foreach_utils, optimizer):
            setattr(module, named, supported)
