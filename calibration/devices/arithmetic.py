"""Settings of PyTorch's arithmetic for measurements and executions: deterministic, with or without TF32."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

# PyTorch's type stubs lack attributes of these modules.
_OPERATORS: Final[tuple[Any, ...]] = (
    torch.backends.cuda.matmul,
    torch.backends.cudnn.conv,  # type: ignore[attr-defined]
    torch.backends.cudnn.rnn,
)


@contextmanager
def arithmetic(*, tf32: bool) -> Iterator[None]:
    """Set the arithmetic of the process within, and restore it.

    With TF32, float32 convolutions and matrix products round their factors to 10 bits of mantissa.

    cuDNN takes the first deterministic algorithm of its heuristic: with `benchmark` it would choose by times, which
    differ from run to run. `use_deterministic_algorithms` is left alone: it also fills fresh memory, with kernels that
    no plan has, and refuses max pooling.

    Precision is set operator by operator through `fp32_precision`. `torch.backends.fp32_precision` does not reach
    convolutions (pytorch issue 179445), and reading `allow_tf32` within, as `torch.backends.cudnn.flags` does, raises
    an error about mixing the two.
    """
    cudnn = torch.backends.cudnn
    precisions = [operator.fp32_precision for operator in _OPERATORS]
    choice = cudnn.deterministic, cudnn.benchmark
    for operator in _OPERATORS:
        operator.fp32_precision = "tf32" if tf32 else "ieee"
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        for operator, precision in zip(_OPERATORS, precisions, strict=True):
            operator.fp32_precision = precision
        cudnn.deterministic, cudnn.benchmark = choice
