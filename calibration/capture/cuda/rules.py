"""Where a rule takes effect, and on which GPU.

PyTorch decides by device in two places. *Composites* (`aten::dropout`) break into other operators before autograd sees
them, as the device of their inputs would have it; a rule breaks them up as for CUDA. *Kernels* (`native_layer_norm`)
allocate their results; a rule allocates what the CUDA kernel does.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch._C import DispatchKey
from torch._ops import OpOverload

Tensor = torch.Tensor

Composite = Callable[..., Any]
"""Is called with a `Gpu` and the arguments of the operator, and returns its results."""

Given = Mapping[str, Any]
"""Arguments of an operator by the names that its schema has for them."""

Kernel = Callable[[Given], Any]
"""Returns the results of an operator as new tensors; None if these are the CPU's."""

HALVES: Final = (torch.float16, torch.bfloat16)


@dataclass
class Gpu:
    """What the rules ask of a GPU.

    Attributes:
        capability: major and minor.
        threads: that are resident on all its multiprocessors together.
        dropout_states: cuDNN's random states, which PyTorch keeps from the first dropout between recurrent layers on.
    """

    capability: tuple[int, int]
    threads: int
    dropout_states: torch.Tensor | None = None

    @property
    def major(self) -> int:
        """Of the compute capability."""
        return self.capability[0]


def torch_version() -> tuple[int, int]:
    """Return major and minor, as (2, 13): some rules are younger than others."""
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


def is_wanted(tensors: Sequence[Tensor | None]) -> bool:
    """Return whether autograd will ask for gradients of any of these."""
    return torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in tensors)


def composite(operator: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Break an operator up as PyTorch does in C++; `decompose` would prefer what compilers are given in Python."""
    return operator._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


Composites = Mapping[OpOverload, Composite]
Kernels = Mapping[OpOverload, Kernel]
