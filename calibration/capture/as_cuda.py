"""Fake tensors of the CPU, treated as those of a GPU where PyTorch would treat these otherwise.

A fake tensor of CUDA would do, but for that PyTorch built without CUDA, or without a GPU, ends its process over one.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import optimizer
from torch.utils import _foreach_utils
from torch.utils._pytree import tree_leaves

from calibration.capture.cuda import attention, normalization, pointwise, recurrent
from calibration.capture.cuda.autocast import autocast_as_cuda
from calibration.capture.cuda.rules import Composite, Gpu
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
"""That are resident on one multiprocessor, where it is not 2048 (CUDA C++ Programming Guide, compute capabilities)."""


@contextmanager
def as_cuda(compute_capability: tuple[int, int], *, multiprocessors: int | None = None) -> Iterator[None]:
    """Let PyTorch dispatch for tensors of the CPU what it dispatches for those of CUDA.

    What operators return is of the shapes and types of CUDA's, so that what autograd saves and what is alive has the
    sizes that it has on a GPU. Real tensors are not for it: the CPU has no kernels for what CUDA dispatches.

    A mode that is to see the operators is entered within this one, and `FakeTensorMode` outside of it. Optimizers whose
    `foreach` nobody chose take lists of tensors here, as on CUDA; `fused=True` works as it does there. The counts of
    steps that an optimizer keeps on the CPU beside a model on a GPU are tensors of the CPU like all others here.
    Autocast of the CPU and that of CUDA are the same within. All this holds for the whole process, in all its threads.

    Args:
        compute_capability: of the GPU, major and minor.
        multiprocessors: of the GPU, on which the size of cuDNN's random states depends; by default as many as the
            largest common card of that capability has.
    """
    count = multiprocessors or _MULTIPROCESSORS.get(compute_capability, 108)
    gpu = Gpu(compute_capability, count * _THREADS.get(compute_capability, 2048))
    with (
        torch.library._scoped_library("aten", "IMPL") as library,  # noqa: SLF001 - of torch/library.py, as documented
        autocast_as_cuda(),
        _foreach_by_default(),
        _CudaResults(gpu),
    ):
        for operator, rule in _COMPOSITES.items():
            library.impl(operator, _bound(rule, gpu), "AutogradCPU")
        yield


def _bound(rule: Composite, gpu: Gpu) -> Callable[..., Any]:
    def dispatch(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return rule(gpu, *args, **kwargs)

    return dispatch


class _CudaResults(OperatorMode):  # type: ignore[no-untyped-call]
    """Returns what CUDA's kernels return where those of the CPU return other shapes or types, or do not exist."""

    def __init__(self, gpu: Gpu) -> None:
        super().__init__()
        self._gpu = gpu

    def dispatch(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Return what an operator would return on CUDA."""
        # Under inference mode, no autograd breaks composites up before they come here.
        if rule := _COMPOSITES.get(func):
            return rule(self._gpu, *args, **kwargs)
        kernel = _KERNELS.get(func)
        if kernel is not None and any(isinstance(each, FakeTensor) for each in tree_leaves((args, kwargs))):
            results = kernel(arguments_of(func, args, kwargs))
            if results is not None:
                return results
        return func(*args, **kwargs)


@contextmanager
def _foreach_by_default() -> Iterator[None]:
    """Let optimizers and the clipping of gradients work on lists of tensors (torch/optim/optimizer.py)."""
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
