"""What torch.compile would make of a captured step: chains of pointwise operators that run as one kernel.

A chain is of operators that follow each other in one phase, each of which reads what one before it in the chain wrote,
over as many elements. In it may stand what computes an element from elements at the same place, and normalizations and
softmaxes, whose sums the compiler takes on the way; convolutions, products, attention, pools and lookups end one, for
they are kernels of libraries. The chain's last operator stands for all of it: it reads what the chain reads once, and
writes of the chain's results those that anything behind it reads. The others launch nothing and move nothing.

The memory of a step stays as it is: what the compiler keeps less of is not modelled, nor what it computes twice to keep
less, nor kernels that it makes of operators that do not follow each other.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import msgspec

from vdnnsim.dnn.captured_groups import kind_of, operator_name
from vdnnsim.dnn.captured_step import CapturedStep
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
"""Operators that are no layer's kind."""


def compiled(step: CapturedStep) -> CapturedStep:
    """Return a step with its chains of pointwise operators fused, and a note that says so."""
    fused = _Fusion(step)
    chains = [chain for chain in fused.chains() if len(chain) > 1]
    operations = list(step.operations)
    for chain in chains:
        for at in chain[:-1]:
            operations[at] = msgspec.structs.replace(operations[at], flop={}, bytes_moved=0)
        operations[chain[-1]] = msgspec.structs.replace(
            operations[chain[-1]], flop=_flop(step, chain), bytes_moved=fused.bytes_moved(chain)
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
        """Return what is left of the traffic of a chain when what stays in registers does not go through DRAM."""
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
                    saved += written.get(storage, 0)  # what is overwritten needs not be written before
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
