"""Fusion by rule of pointwise operators of a step that was captured eagerly, as by torch.compile.

A chain consists of consecutive operators of one phase, each of which reads what an earlier one of the chain wrote, over
equally many elements: pointwise operators, and normalizations and softmaxes, whose reductions the compiler fuses.
Convolutions, products, attention, pooling and lookups, which are library kernels, end a chain. The last operator stands
for the chain: it reads the inputs of the chain once, and writes the results that are read later. The others launch and
move nothing.

Memory stays as it is: neither what the compiler saves less of, nor what it recomputes for that, nor fusion of operators
that are not consecutive is modelled.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import msgspec

from vdnnsim.dnn.captured_groups import kind_of, operator_name
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.kernel_work import NO_SECTORS
from vdnnsim.dnn.layers import LayerKind, Phase
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.dnn.step import ELEMENT_BYTES, StepOperation

_KINDS: Final = {
    *(LayerKind.BN, LayerKind.LN, LayerKind.ACTV, LayerKind.DROPOUT),
    *(LayerKind.ADD, LayerKind.PRODUCT, LayerKind.CAST),
}
_POINTWISE: Final = re.compile(
    r"(abs|neg|exp|log|sqrt|rsqrt|pow|square|reciprocal|sin|cos|erf|where|masked_fill|maximum|minimum|copy|clone|fill)_?"
)
"""Pointwise operators that have no `LayerKind`."""
_FUSED: Final[Mapping[str, Any]] = {"copied_bytes": 0, "sectors": NO_SECTORS}
"""Inductor's kernels go through tiles of tensors that lie otherwise."""


def compiled(step: CapturedStep) -> CapturedStep:
    """Return a step with its chains of pointwise operators fused, and a note that says so."""
    fused = _Fusion(step)
    chains = [chain for chain in fused.chains() if len(chain) > 1]
    operations = list(step.operations)
    for chain in chains:
        for at in chain[:-1]:
            operations[at] = msgspec.structs.replace(operations[at], flop={}, bytes_moved=0, **_FUSED)
        operations[chain[-1]] = msgspec.structs.replace(
            operations[chain[-1]], flop=_flop(step, chain), bytes_moved=fused.bytes_moved(chain), **_FUSED
        )
    note = (
        f"compiled: {sum(map(len, chains))} of {len(operations)} operators run as {len(chains)} kernels; memory is "
        "that of a model that is not compiled."
    )
    return msgspec.structs.replace(step, operations=tuple(operations), notes=(*step.notes, note))


def _flop(step: CapturedStep, chain: Sequence[int]) -> dict[Arithmetic, int]:
    kinds = dict.fromkeys(kind for at in chain for kind in step.operations[at].flop)
    return {kind: sum(step.operations[at].flop.get(kind, 0) for at in chain) for kind in kinds}


@dataclass
class _Fusion:
    """Finds the chains of a step, as numbers of operations, and what each moves."""

    step: CapturedStep

    def __post_init__(self) -> None:
        self._last_read = {
            self.step.tensors[operand.memory].storage: at
            for at, operation in enumerate(self.step.operations)
            for operand in operation.operands
            if operand.access.reads
        }

    def chains(self) -> Iterator[list[int]]:
        chain: list[int] = []
        for at, operation in enumerate(self.step.operations):
            if not operation.bytes_moved:
                continue
            if chain and self._goes_on(chain, operation):
                chain.append(at)
                continue
            if chain:
                yield chain
            chain = [at] if self._is_fusible(operation) else []
        if chain:
            yield chain

    def bytes_moved(self, chain: Sequence[int]) -> int:
        """Return the DRAM traffic of a chain, less what stays in registers."""
        operations, read, written, saved = self.step.operations, set[int](), dict[int, int](), 0
        for at in chain:
            operands = operations[at].operands
            for operand in operands:
                storage = self.step.tensors[operand.memory].storage
                if operand.access.reads and (storage in written or operand.memory in read):
                    saved += self._nbytes(operand.memory)
                read.add(operand.memory)
            for operand in operands:
                storage = self.step.tensors[operand.memory].storage
                if operand.access.writes:
                    saved += written.get(storage, 0)  # overwritten within the chain
                    written[storage] = self._nbytes(operand.memory)
        saved += sum(nbytes for storage, nbytes in written.items() if not self._is_needed(storage, chain[-1]))
        return max(1, sum(operations[at].bytes_moved for at in chain) - saved)

    def _is_needed(self, storage: int, after: int) -> bool:
        return self.step.storages[storage].freed_after is None or self._last_read.get(storage, -1) > after

    def _is_fusible(self, operation: StepOperation) -> bool:
        if operation.work is not None or operation.phase is Phase.UPDATE:
            return False
        is_pointwise = _POINTWISE.fullmatch(operator_name(operation.name)) is not None
        return is_pointwise or kind_of(operation, self.step) in _KINDS

    def _goes_on(self, chain: Sequence[int], operation: StepOperation) -> bool:
        """Whether an operation reads what a chain wrote, over as many elements, in the same phase."""
        last = self.step.operations[chain[-1]]
        if operation.phase is not last.phase or not self._is_fusible(operation):
            return False
        storage = [self.step.tensors[each].storage for at in chain for each in _written(self.step.operations[at])]
        reads = (self.step.tensors[each.memory].storage for each in operation.operands if each.access.reads)
        return self._elements(operation) == self._elements(last) and not set(storage).isdisjoint(reads)

    def _elements(self, operation: StepOperation) -> int:
        return max((prod(self.step.tensors[each].shape) for each in _written(operation)), default=0)

    def _nbytes(self, tensor: int) -> int:
        each = self.step.tensors[tensor]
        return prod(each.shape) * ELEMENT_BYTES[each.element_type]


def _written(operation: StepOperation) -> Iterator[int]:
    return (each.memory for each in operation.operands if each.access.writes)
