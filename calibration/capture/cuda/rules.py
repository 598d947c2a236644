"""Types of rules, and the GPU that they are for.

PyTorch decides by device in two places. *Composites* (`aten::dropout`) are decomposed before autograd, by a rule as on
CUDA. *Kernels* (`native_layer_norm`) allocate results, by a rule those of the CUDA kernel.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch._C import DispatchKey
from torch._ops import OpOverload

Tensor = torch.Tensor

Composite = Callable[..., Any]
"""From a `Gpu` and the arguments of the operator to its results."""

Given = Mapping[str, Any]
"""Arguments of an operator by their names in the schema."""

Kernel = Callable[[Given], Any]
"""From arguments to new tensors; None for those of the CPU."""

HALVES: Final = (torch.float16, torch.bfloat16)


@dataclass
class Gpu:
    """A GPU.

    Attributes:
        dropout_states: cuDNN's random states, which PyTorch keeps from the first dropout between recurrent layers on.
        largest_head: of attention so far; 0 before.
    """

    capability: tuple[int, int]
    threads: int
    dropout_states: torch.Tensor | None = None
    largest_head: int = 0

    @property
    def major(self) -> int:
        return self.capability[0]


def torch_version() -> tuple[int, int]:
    """Return major and minor, as (2, 13)."""
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


def is_wanted(tensors: Sequence[Tensor | None]) -> bool:
    """Return whether any of these needs a gradient."""
    return torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in tensors)


def composite(operator: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Decompose an operator by PyTorch's C++; `decompose` would prefer Python's decompositions for compilers."""
    return operator._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


Composites = Mapping[OpOverload, Composite]
Kernels = Mapping[OpOverload, Kernel]
