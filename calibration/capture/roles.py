"""Kinds of storages and roles of operands, assigned when an iteration has been recorded."""

from collections.abc import Sequence
from typing import Final

from calibration.capture.record import Record
from calibration.capture.storages import Life
from vdnnsim.dnn.collective import CollectiveKind
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import Access, BufferKind, Operand, Role

_MAPS_RETURNED: Final = {
    "aten.native_layer_norm.default": 1,
    "aten._thnn_fused_lstm_cell.default": 2,
    "aten._cudnn_rnn.default": 3,
    "aten._thnn_fused_gru_cell.default": 1,
    "aten.mkldnn_rnn_layer.default": 3,
}
"""How many results are activations, from the first on; the rest are statistics for backward."""

_SEVERAL_MAPS: Final = frozenset({"aten.split", "aten.unbind", "aten.chunk", "aten._foreach", "aten.meshgrid"})


def assign_kinds(records: Sequence[Record], lives: Sequence[Life], gradients: Sequence[int]) -> None:
    """Assign a kind to each storage made by an operation; `gradients` are those of parameters at the end."""
    for record in records:
        for number, index in record.results.items():
            lives[number].kind = _kind(record, lives[number], index)
    for number in gradients:
        if not lives[number].given:
            lives[number].kind = BufferKind.WEIGHT_GRADIENT
    for record in records:
        if record.accumulates:
            _mark(record, lives, BufferKind.GRADIENT_MAP, BufferKind.WEIGHT_GRADIENT)
    copies = {
        position
        for position, record in enumerate(records)
        if record.phase is Phase.FORWARD or record.recomputes
        if record.name in _CASTS and lives[record.operands[0][0]].kind is BufferKind.WEIGHTS
    }
    for position in copies:
        _mark(records[position], lives, BufferKind.FEATURE_MAP, BufferKind.WEIGHTS)
    for record in records:
        if record.phase is Phase.BACKWARD and record.forward in copies and not record.recomputes:
            _mark(record, lives, BufferKind.GRADIENT_MAP, BufferKind.WEIGHT_GRADIENT)
    _assign_communicated(records, lives)
    for record in records:
        for number, _, __ in record.operands:
            if record.name.startswith("aten.nll_loss") and lives[number].element_type == "int64":
                lives[number].kind = BufferKind.LABELS


def _assign_communicated(records: Sequence[Record], lives: Sequence[Life]) -> None:
    """Assign what ranks gather and reduce beside kernels: weights, and their gradients."""
    maps = (BufferKind.FEATURE_MAP, BufferKind.GRADIENT_MAP)
    for record in records:
        if not record.aside:
            continue
        for number, _, __ in record.operands:
            if lives[number].constant:
                # A bucket of DistributedDataParallel, which it made in an earlier iteration.
                lives[number].name, lives[number].kind = "bucket of gradients", BufferKind.WEIGHT_GRADIENT
        if record.collective is not None and not record.collective.is_point_to_point:
            gathers = record.collective.kind in {CollectiveKind.ALL_GATHER, CollectiveKind.BROADCAST}
            for kind in maps:
                _mark(record, lives, kind, BufferKind.WEIGHTS if gathers else BufferKind.WEIGHT_GRADIENT)
    for record in records:
        kinds = {lives[number].kind for number, _, __ in record.operands}
        for kind in (BufferKind.WEIGHTS, BufferKind.WEIGHT_GRADIENT):
            if kind in kinds and (record.aside or record.name in _INTO_BUFFERS):
                for old in maps:
                    _mark(record, lives, old, kind)


_INTO_BUFFERS: Final = frozenset({"fsdp.all_gather_copy_in.default", "fsdp.chunk_cat.default"})
_CASTS: Final = frozenset({"aten._to_copy.default"})


def operands_of(record: Record, records: Sequence[Record], lives: Sequence[Life]) -> tuple[Operand, ...]:
    made = set(records[record.forward].results) if record.forward is not None else set()
    return tuple(
        Operand(_role(record, lives[number].kind, access, number in made), tensor, access)
        for number, tensor, access in record.operands
    )


def _kind(record: Record, life: Life, index: int) -> BufferKind:
    if record.phase is Phase.UPDATE:
        return BufferKind.WORKSPACE
    if record.phase is Phase.BACKWARD and not record.recomputes:
        return BufferKind.GRADIENT_MAP
    is_map = index < _MAPS_RETURNED.get(record.name, 1) or any(map(record.name.startswith, _SEVERAL_MAPS))
    is_number = life.element_type.startswith(("float", "bfloat", "complex"))
    return BufferKind.FEATURE_MAP if is_map and (is_number or index == 0) else BufferKind.STATISTICS


def _mark(record: Record, lives: Sequence[Life], old: BufferKind, new: BufferKind) -> None:
    for number, _, __ in record.operands:
        if lives[number].kind is old and not lives[number].given:
            lives[number].kind = new


def _role(record: Record, kind: BufferKind, access: Access, is_output: bool) -> Role:  # noqa: FBT001
    if kind in _BY_KIND:
        return _BY_KIND[kind]
    if record.phase is Phase.UPDATE:
        return Role.WORKSPACE
    if kind is BufferKind.GRADIENT_MAP:
        return Role.INPUT_GRADIENT if access is not Access.READ else Role.OUTPUT_GRADIENT
    # Forward writes Y; backward reads X and Y.
    return Role.OUTPUT if access is not Access.READ or is_output else Role.INPUT


_BY_KIND: Final = {
    BufferKind.WEIGHTS: Role.WEIGHTS,
    BufferKind.WEIGHT_GRADIENT: Role.WEIGHT_GRADIENT,
    BufferKind.OPTIMIZER_STATE: Role.STATE,
    BufferKind.STATISTICS: Role.STATISTICS,
    BufferKind.LABELS: Role.LABELS,
    BufferKind.WORKSPACE: Role.WORKSPACE,
}
