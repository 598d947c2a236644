"""What kind of kernel an operator is, by its name: of our networks (`batch_norm`) and of PyTorch (`aten.mm.default`).

Kernels of a kind go through memory in the same way, so they reach the same fraction of its bandwidth.
"""

from enum import Enum
from typing import Final

from vdnnsim.dnn.layers import Phase


class OperatorKind(Enum):
    """Kinds of kernels, by how they go through memory; one for each `..._dram_fraction` of the cost model."""

    POINTWISE = "pointwise"
    COPY = "copy"
    REDUCTION = "reduction"
    NORMALIZATION = "normalization"
    ROW_NORMALIZATION = "row_normalization"
    POOLING = "pooling"
    POOLING_GRADIENT = "pooling_gradient"
    UPDATE = "update"


_BY_WORD: Final = (
    ("batch_norm", OperatorKind.NORMALIZATION),
    ("instance_norm", OperatorKind.NORMALIZATION),
    ("_norm", OperatorKind.ROW_NORMALIZATION),
    ("softmax", OperatorKind.ROW_NORMALIZATION),
    ("pool", OperatorKind.POOLING),
    ("_foreach_", OperatorKind.UPDATE),
    ("_fused_", OperatorKind.UPDATE),
)
"""Parts of names, the first that is found."""

_BY_NAME: Final = {
    **dict.fromkeys(
        ("cast", "concat", "class_token", "_to_copy", "clone", "copy_", "cat", "stack", "constant_pad_nd"),
        OperatorKind.COPY,
    ),
    **dict.fromkeys(("sum", "mean", "var", "var_mean", "norm", "amax", "max", "argmax"), OperatorKind.REDUCTION),
    **dict.fromkeys(("sgd", "momentum", "adam"), OperatorKind.UPDATE),
}


def operator_kind(name: str, phase: Phase | None = None) -> OperatorKind:
    """Return the kind of a kernel that is no product; what has no other is pointwise.

    Args:
        name: the word of an operator or an optimizer in tables of kernels, or PyTorch's name with its overload.
        phase: of the kernel; where nobody knows it, the name says whether it is backward.
    """
    word = name.removeprefix("aten.").partition(".")[0]
    found = _BY_NAME.get(word) or next((kind for part, kind in _BY_WORD if part in word), OperatorKind.POINTWISE)
    is_backward = word.endswith("_backward") or (phase is not None and phase.is_backward)
    return OperatorKind.POOLING_GRADIENT if found is OperatorKind.POOLING and is_backward else found
