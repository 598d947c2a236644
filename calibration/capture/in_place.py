"""Operations that autograd runs in place, but not in a capture: PyTorch replaces them under dispatch modes.

It does so in a capture (`isTensorSubclassLike` in `ATen/TensorSubclassLikeUtils.h`). A run without modes accumulates
gradients that meet at a node in the first of them, if nothing else holds it (`accumulate` in
`torch/csrc/autograd/input_buffer.cpp`), and backward formulas write to their own temporaries
(`torch/csrc/autograd/FunctionsManual.cpp`, as `gather_backward`). Of `DTensor`s, as of all subclasses, it does neither.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch
from torch._ops import OpOverload
from torch._prims_common import is_non_overlapping_and_dense_or_false
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import Node

from calibration.capture.nodes import running_node
from calibration.capture.record import Record
from calibration.capture.schemas import name_of
from calibration.capture.storages import StorageTable, Touch
from vdnnsim.dnn.step import Access


def overwrites(func: OpOverload, args: Sequence[Any], result: object, made_in: int | None) -> bool:
    """Return whether autograd, without modes, would write the result over the first operand, if nothing holds it.

    `made_in` is the sequence number of the node that made that operand, None of any other.
    """
    node = running_node()
    if node is None or torch.is_grad_enabled() or not isinstance(result, torch.Tensor):
        return False
    if func is _ADD:
        other = args[1] if len(args) == _SUMMANDS else None
        return isinstance(other, torch.Tensor) and _meet(node, args[0], other, result, made_in)
    is_formula = name_of(func) in _IN_FORMULAS or (node.name(), name_of(func)) in _IN_FORMULA_OF
    return is_formula and made_in == node._sequence_nr() and not _is_in_python()  # noqa: SLF001


def _meet(node: Node, first: torch.Tensor, second: torch.Tensor, result: torch.Tensor, made_in: int | None) -> bool:
    """Return whether a sum accumulates two gradients that meet at a node."""
    is_alike = first.shape == second.shape == result.shape and first.dtype == result.dtype
    # A view holds its base.
    if not is_alike or first._is_view() or first.untyped_storage()._cdata == second.untyped_storage()._cdata:  # noqa: SLF001
        return False
    # The first is of another node, or of the same one, as where both factors are one tensor.
    edges = [each for each in node.next_functions if each[0] is not None]
    if made_in == node._sequence_nr() and len(set(edges)) == len(edges):  # noqa: SLF001
        return False
    return is_non_overlapping_and_dense_or_false(first) and not _is_in_python()


def _is_in_python() -> bool:
    """Return whether the engine of autograd called Python, for a function in it or for an operator on `DTensor`s."""
    frame = sys._getframe()  # noqa: SLF001 - documented
    while frame.f_back is not None and frame.f_code is not _ENGINE:
        if frame.f_code is _BACKWARD or frame.f_code.co_filename == _OF_DTENSORS:
            return True
        frame = frame.f_back
    return False


def write_in_place(records: Sequence[Record], storages: StorageTable) -> dict[int, int]:
    """Change records that `overwrites` its first operand to in-place ones where nothing holds it afterwards.

    Returns:
        The new number of each storage by its old one.
    """
    into: dict[int, Touch] = {}
    for position, record in enumerate(records):
        record.operands = [storages.moved(each, into) for each in record.operands]
        if not record.overwrites:
            continue
        number, view, _ = record.operands[0]
        life = storages.lives[number]
        if life.given or life.freed_after != position:
            continue
        (result,) = record.results
        into[result] = overwritten = number, view, Access.UPDATE
        life.freed_after = storages.lives[result].freed_after
        name, _, overload = record.name.rpartition(".")
        record.name, record.results = f"{name}_.{overload}", {}
        record.operands = [overwritten, *(each for each in record.operands[1:] if each[0] != result)]
    numbers, views = storages.renumber(into)
    for record in records:
        record.operands = [(numbers[number], views[view], access) for number, view, access in record.operands]
        record.results = {numbers[number]: index for number, index in record.results.items()}
        record.saves = [numbers[each] for each in record.saves]
    return numbers


_ADD: Final = torch.ops.aten.add.Tensor
_SUMMANDS: Final = 2
_IN_FORMULAS: Final = frozenset({"scatter_add", "scatter", "index_put", "index_add", "put", "masked_scatter"})
"""Applied by formulas to zeros or a copy of their own."""
_IN_FORMULA_OF: Final = frozenset(
    {
        ("BinaryCrossEntropyWithLogitsBackward0", "sub"),
        ("BinaryCrossEntropyWithLogitsBackward0", "mul"),
        ("TraceBackward0", "index_fill"),
    }
)
_ENGINE: Final = torch.autograd.graph._engine_run_backward.__code__  # noqa: SLF001
_BACKWARD: Final = BackwardCFunction.apply.__code__
_OF_DTENSORS: Final = str(Path(torch.__file__).parent / "distributed" / "tensor" / "_dispatch.py")
"""Runs operators on the parts of `DTensor`s."""
