"""Reads of the host from the pretended GPU: answered with zeros and counted, or refused where a size depends on values.

Kernels compute nothing, so only copied device memory has values. A number that the host reads is therefore a zero:
losses are not NaN, and gradients do not overflow. A result whose *size* depends on values is refused. Data from other
processes was copied, and is read as it is.
"""

import warnings
from collections import Counter
from collections.abc import Callable

import torch

from .user_lines import is_called_from, user_line_here

_EXCHANGES = ("/torch/distributed/", "/torch/nn/parallel/")
"""Where PyTorch reads data of other processes, as sizes of parameters."""
_SIZED_BY_VALUES = (
    "nonzero",
    "masked_select",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "bincount",
    "repeat_interleave.Tensor",
)
"""Operators whose result sizes depend on values; a boolean index is a `nonzero`."""


class ValuesNotComputedError(RuntimeError):
    """The program needs values that a pretended GPU does not compute."""


class Reads:
    """Counts reads of the host from the pretended GPU, by the user's line.

    Attributes:
        zeros: how often each line read a zero.
        refused: messages of the refusals, in order.
    """

    def __init__(self) -> None:
        self.zeros: Counter[str] = Counter()
        self.refused: list[str] = []
        self._library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
        with warnings.catch_warnings():
            # Replacing a kernel of PyTorch warns.
            warnings.simplefilter("ignore")
            self._library.impl("_local_scalar_dense", self._zero, "CUDA")  # type: ignore[no-untyped-call]
            for name in _SIZED_BY_VALUES:
                self._library.impl(name, self._refusal(name), "CUDA")  # type: ignore[no-untyped-call]

    def _zero(self, tensor: torch.Tensor) -> bool | int | float | complex:
        if is_called_from(*_EXCHANGES):
            return tensor.detach().cpu().item()
        self.zeros[user_line_here()] += 1
        torch.cuda.current_stream(tensor.device).synchronize()
        if tensor.dtype is torch.bool:
            return False
        if tensor.dtype.is_complex:
            return 0j
        return 0.0 if tensor.dtype.is_floating_point else 0

    def _refusal(self, name: str) -> Callable[..., object]:
        def refuse(*_arguments: object, **_names: object) -> object:
            what = "nonzero (a boolean index is one)" if name == "nonzero" else name.partition(".")[0].strip("_")
            where = user_line_here()
            sentence = f"{what} has a result whose size depends on values, which a pretended GPU does not compute" + (
                f"; called at {where}" if where else ""
            )
            self.refused.append(sentence)
            raise ValuesNotComputedError(sentence)

        return refuse
