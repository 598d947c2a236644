"""How PyTorch computes on a GPU while something is measured or executed: repeatably, and with or without TF32."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch

# Modules whose attributes the types of PyTorch do not know.
_OPERATORS: Final[tuple[Any, ...]] = (
    torch.backends.cuda.matmul,
    torch.backends.cudnn.conv,  # type: ignore[attr-defined]
    torch.backends.cudnn.rnn,
)


@contextmanager
def arithmetic(*, tf32: bool) -> Iterator[None]:
    """Set what holds for the whole process, and put it back.

    cuDNN takes its heuristic's first deterministic algorithm: with the benchmark switched on it would choose by times
    that differ from run to run. PyTorch's `use_deterministic_algorithms` stays as it is: it also fills fresh memory,
    which costs kernels that no plan has, and refuses max pooling.

    Precision is set operator by operator through `fp32_precision`. Setting `torch.backends.fp32_precision` does not
    reach convolutions (pytorch issue 179445), and whoever reads `allow_tf32` meanwhile, as the context manager
    `torch.backends.cudnn.flags` does, gets an error that the two do not mix.

    Args:
        tf32: whether float32 convolutions and matrix products round their factors to 10 bits of mantissa.
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
