"""The workload that a recorded step is: a captured step (`vdnnsim.dnn.captured_step`) whose operations were timed.

A trace tells sizes, phases and the order, but not which tensor an operation read: so every operation reads what the
one before it made, and `lifetimes` is false. What it takes on another machine can be asked of it; what it would hold,
or what a policy would move, cannot.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from vdnnsim.dnn.captured_step import (
    VERSION,
    CapturedModule,
    CapturedOperand,
    CapturedOperation,
    CapturedStep,
    CapturedStorage,
    CapturedTensor,
)
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import Access, BufferKind, Role
from vdnnsim.dnn.workload import Mode
from vdnnsim.element_type import Precision
from vdnnsim.recordings.recorded_step import RecordedStep
from vdnnsim.recordings.trace_operations import CONVOLUTION, Operation
from vdnnsim.recordings.trace_work import OperationWork

NO_LIFETIMES: Final = "a trace tells no storages: every operation reads what the one before it made"
_ACCUMULATES: Final = "AccumulateGrad"
_OPTIMIZER: Final = "Optimizer.step#"
_NARROW: Final = ("float16", "bfloat16")
_SIZES: Final = {"float16": 2, "bfloat16": 2, "float64": 8, "int64": 8}


def captured_step(recorded: RecordedStep, model: str) -> CapturedStep:
    """Return a recorded step as a captured one.

    Args:
        recorded: with the sizes of tensors.
        model: what to call it.
    """
    phases = _phases(recorded.operations)
    builder = _Builder(recorded, phases)
    for position in range(len(recorded.operations)):
        builder.add(position)
    parameters = sum(
        math.prod(each.event.dims[0])
        for each in recorded.step.calls
        if each.event.name.endswith(_ACCUMULATES) and each.event.dims
    )
    gpu = recorded.trace.gpu
    return CapturedStep(
        version=VERSION,
        model=model,
        framework="torch, as recorded by its profiler",
        device=f"cuda {gpu.capability}" if gpu else "cuda",
        batch_size=recorded.batch_size,
        sample="image" if any(each.name == CONVOLUTION for each in recorded.operations) else "sequence",
        sample_elements=1,
        mode=Mode.TRAINING if Phase.BACKWARD in phases else Mode.INFERENCE,
        precision=precision_of(recorded),
        optimizer=_optimizer(recorded),
        parameters=parameters,
        modules=tuple(builder.modules),
        storages=tuple(builder.storages),
        tensors=tuple(builder.tensors),
        operations=tuple(builder.operations),
        notes=(f"recorded: {recorded.step.name} of {recorded.trace.name}", NO_LIFETIMES),
        lifetimes=False,
    )


def precision_of(recorded: RecordedStep) -> Precision:
    """Return in what a step computed, by the types of its products and of the gradients of its parameters."""
    products = {each.element_type for each in recorded.works if each.work is not None}
    kernels = (launch.event.name for each in recorded.operations for launch in each.launches)
    narrow = next((each for each in _NARROW if each in products), None)
    if narrow is None:
        return Precision.TF32 if any("tf32" in name.lower() for name in kernels) else Precision.FLOAT32
    gradients = {
        kind
        for each in recorded.step.calls
        if each.event.name.endswith(_ACCUMULATES)
        for kind in each.event.types[:1]
    }
    return Precision(f"amp_{narrow}" if "float" in gradients else narrow)


def _phases(operations: Sequence[Operation]) -> list[Phase]:
    """Return phases in an order that an iteration has: gradients are cleared as a part of what goes on around that."""
    phases = [each.phase for each in operations]
    if Phase.BACKWARD not in phases:
        return [Phase.FORWARD] * len(phases)
    last = max(at for at, phase in enumerate(phases) if phase is not Phase.UPDATE)
    for at in range(last + 1):
        if phases[at] is Phase.UPDATE:
            phases[at] = phases[at - 1] if at else Phase.FORWARD
    if phases[0] is not Phase.FORWARD:
        phases[0] = Phase.FORWARD
    return phases


def _optimizer(recorded: RecordedStep) -> str:
    """Return the optimizer by what it is called; SGD that scales something keeps a momentum."""
    for call in recorded.step.calls:
        if call.event.name.startswith(_OPTIMIZER):
            name = call.event.name.removeprefix(_OPTIMIZER).partition(".")[0].lower()
            updates = (each.name.strip("_") for each in recorded.operations if each.phase is Phase.UPDATE)
            scales = name == "sgd" and any(each in {"mul", "foreach_mul"} for each in updates)
            return "momentum" if scales else name or "unknown"
    return "none"


@dataclass
class _Builder:
    """Makes operations of a chain of storages."""

    recorded: RecordedStep
    phases: Sequence[Phase]
    modules: list[CapturedModule] = field(default_factory=list)
    storages: list[CapturedStorage] = field(default_factory=list)
    tensors: list[CapturedTensor] = field(default_factory=list)
    operations: list[CapturedOperation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._paths: dict[str, int] = {}
        first = next((each.dims[0] for each in self.recorded.operations if each.dims and each.dims[0]), (1,))
        self._before = self._storage("input", BufferKind.FEATURE_MAP, first, "float32", given=True)
        self._state = self._storage("state of the optimizer", BufferKind.OPTIMIZER_STATE, (1,), "float32", given=True)

    def add(self, position: int) -> None:
        """Add the operation at a position, which are added in order."""
        operation, work, phase = (
            self.recorded.operations[position],
            self.recorded.works[position],
            self.phases[position],
        )
        forward = operation.forward if phase is Phase.BACKWARD else None
        module = self.operations[forward].module if forward is not None else self._module(operation, phase)
        self.operations.append(
            CapturedOperation(
                name=f"aten.{operation.name.replace('::', '_')}.default",
                module=module,
                phase=phase,
                operands=tuple(self._operands(operation, work, phase, position)),
                element_type=work.element_type,
                flop=work.flop,
                bytes_moved=work.bytes_moved,
                forward=forward,
                work=work.work,
                known=bool(operation.dims),
            )
        )

    def _operands(
        self, operation: Operation, work: OperationWork, phase: Phase, position: int
    ) -> list[CapturedOperand]:
        if phase is Phase.UPDATE:
            return [CapturedOperand(Role.STATE, self._state, Access.UPDATE)]
        before = self._before
        backward = phase is Phase.BACKWARD
        kind = BufferKind.GRADIENT_MAP if backward else BufferKind.FEATURE_MAP
        role = Role.INPUT_GRADIENT if backward else Role.OUTPUT
        if backward and work.role is Role.WEIGHT_GRADIENT:
            kind, role = BufferKind.WEIGHT_GRADIENT, Role.WEIGHT_GRADIENT
        self._before = self._storage(f"{operation.name} {position}", kind, work.output, work.element_type)
        self._free_after(self.tensors[before].storage, position)
        operands = [CapturedOperand(Role.OUTPUT_GRADIENT if backward else Role.INPUT, before, Access.READ)]
        if not backward and work.work is not None and operation.dims:
            weights = operation.dims[-1] if operation.name != CONVOLUTION else operation.dims[1]
            sizes = weights or work.output
            number = self._storage(f"weights {position}", BufferKind.WEIGHTS, sizes, work.element_type, given=True)
            operands.append(CapturedOperand(Role.WEIGHTS, number, Access.READ))
        return [*operands, CapturedOperand(role, self._before, Access.WRITE)]

    def _storage(
        self, name: str, kind: BufferKind, shape: tuple[int, ...], element_type: str, *, given: bool = False
    ) -> int:
        """Return the number of a tensor that is a storage of its own."""
        nbytes = math.prod(shape) * _SIZES.get(element_type, 4)
        known = element_type if element_type in _SIZES else "float32"
        self.storages.append(CapturedStorage(name, kind, nbytes, known, given))
        self.tensors.append(CapturedTensor(len(self.storages) - 1, shape, known))
        return len(self.tensors) - 1

    def _free_after(self, storage: int, position: int) -> None:
        each = self.storages[storage]
        if not each.given:
            self.storages[storage] = CapturedStorage(each.name, each.kind, each.nbytes, each.element_type, False, position)

    def _module(self, operation: Operation, phase: Phase) -> int:
        path = operation.module.replace("/", ".")
        if not path:
            path = "" if phase is Phase.UPDATE else f"{operation.name} {len(self.modules)}"
        if path not in self._paths:
            self._paths[path] = len(self.modules)
            self.modules.append(CapturedModule(path, path.rpartition(".")[2] or "optimizer"))
        return self._paths[path]
