"""The workload of a recorded step: a captured step (`vdnnsim.dnn.captured_step`).

A trace has sizes, phases and the order of operations, but not their operands: each reads the output of the one before,
and `lifetimes` is false. Then there are times on other machines, but neither memory nor policies, for which an
execution trace of the same run is needed.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from vdnnsim.dnn.captured_step import VERSION, CapturedStep
from vdnnsim.dnn.kernel_work import ProductWork
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import ELEMENT_BYTES, Access, BufferKind, Module, Operand, Role, StepOperation, Storage, Tensor
from vdnnsim.dnn.workload import Mode
from vdnnsim.files.value import LONGEST_TEXT
from vdnnsim.recordings.execution_trace import ExecutionTrace, StepMemory, recorded_memory
from vdnnsim.recordings.recorded_step import RecordedStep
from vdnnsim.recordings.trace_operations import CONVOLUTION, Operation
from vdnnsim.units import Precision

NO_LIFETIMES: Final = "a trace has no storages: every operation reads the output of the one before"
_ACCUMULATES: Final = "AccumulateGrad"
_OPTIMIZER: Final = "Optimizer.step#"
_NARROW: Final = ("float16", "bfloat16")
_IN_TF32: Final = re.compile("tf32|tensorop_s1688gemm")
"""In names of kernels, in lower case; CUTLASS's `cutlass_80_tensorop_s1688gemm` multiplies float32 in TF32."""


def captured_step(recorded: RecordedStep, model: str, execution: ExecutionTrace | None = None) -> CapturedStep:
    """Return a recorded step as a captured one; without an execution trace it has no lifetimes."""
    phases = _phases(recorded.operations)
    memory = _chained(recorded, phases) if execution is None else recorded_memory(recorded, phases, execution)
    modules, named = _modules(recorded, phases)
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
        mode=Mode.INFERENCE if set(phases) == {Phase.FORWARD} else Mode.TRAINING,
        precision=precision_of(recorded),
        optimizer=_optimizer(recorded),
        parameters=parameters,
        modules=tuple(named),
        storages=memory.storages,
        tensors=memory.tensors,
        operations=tuple(
            StepOperation(
                name=f"aten.{operation.name.replace('::', '_')}.default",
                module=modules[at],
                phase=phase,
                operands=memory.operands[at],
                element_type=work.element_type,
                flop=work.flop,
                bytes_moved=work.bytes_moved,
                forward=operation.forward if phase is Phase.BACKWARD else None,
                saves=memory.saves[at],
                work=work.work,
                known=bool(operation.dims),
            )
            for at, (operation, work, phase) in enumerate(zip(recorded.operations, recorded.works, phases, strict=True))
        ),
        notes=(f"recorded: {recorded.step.name}, {recorded.step.why}", memory.note),
        lifetimes=memory.lifetimes,
    )


def precision_of(recorded: RecordedStep) -> Precision:
    """Return the precision of a step, by the types of its products and of the gradients of its parameters."""
    products = {each.element_type for each in recorded.works if each.work is not None}
    narrow = next((each for each in _NARROW if each in products), None)
    if narrow is None:
        # Convolutions may be in TF32 in float32, too.
        matrices = (
            launch.event.name.lower()
            for operation, each in zip(recorded.operations, recorded.works, strict=True)
            if isinstance(each.work, ProductWork)
            for launch in operation.launches
        )
        return Precision.TF32 if any(_IN_TF32.search(name) for name in matrices) else Precision.FLOAT32
    gradients = {
        kind for each in recorded.step.calls if each.event.name.endswith(_ACCUMULATES) for kind in each.event.types[:1]
    }
    return Precision(f"amp_{narrow}" if "float" in gradients else narrow)


def _phases(operations: Sequence[Operation]) -> list[Phase]:
    """Return phases in the order of an iteration; `zero_grad` counts to the phase around it."""
    phases = [each.phase for each in operations]
    if Phase.BACKWARD not in phases:
        return [Phase.FORWARD] * len(phases)
    last = max(at for at, phase in enumerate(phases) if phase is not Phase.UPDATE)
    for at in range(last + 1):
        if phases[at] is Phase.UPDATE:
            phases[at] = phases[at - 1] if at else Phase.FORWARD
    phases[0] = Phase.FORWARD
    return phases


def _optimizer(recorded: RecordedStep) -> str:
    """Return the optimizer by the name of its step; SGD that multiplies has momentum."""
    for call in recorded.step.calls:
        if call.event.name.startswith(_OPTIMIZER):
            name = call.event.name.removeprefix(_OPTIMIZER).partition(".")[0].lower()
            updates = (each.name.strip("_") for each in recorded.operations if each.phase is Phase.UPDATE)
            scales = name == "sgd" and any(each in {"mul", "foreach_mul"} for each in updates)
            return "momentum" if scales else name or "unknown"
    return "none"


def _modules(recorded: RecordedStep, phases: Sequence[Phase]) -> tuple[list[int], list[Module]]:
    """Return the module of each operation, and all modules; without recorded ones each forward is its own."""
    numbers: list[int] = []
    paths: dict[str, int] = {}
    for operation, phase in zip(recorded.operations, phases, strict=True):
        if phase is Phase.BACKWARD and operation.forward is not None:
            numbers.append(numbers[operation.forward])
            continue
        path = operation.module.replace("/", ".")[-LONGEST_TEXT // 2 :]
        if not path and phase is not Phase.UPDATE:
            path = f"{operation.name.rstrip('_')} {len(paths)}"
        numbers.append(paths.setdefault(path, len(paths)))
    return numbers, [Module(path, path.rpartition(".")[2] or "torch.optim.Optimizer") for path in paths]


def _chained(recorded: RecordedStep, phases: Sequence[Phase]) -> StepMemory:
    """Return memory with recorded sizes alone: each operation reads the output of the one before."""
    chain = _Chain()
    first = next((each.dims[0] for each in recorded.operations if each.dims and each.dims[0]), (1,))
    before = chain.add("input", BufferKind.FEATURE_MAP, first, given=True)
    state = chain.add("state of the optimizer", BufferKind.OPTIMIZER_STATE, (1,), given=True)
    operands: list[tuple[Operand, ...]] = []
    for at, (operation, work, phase) in enumerate(zip(recorded.operations, recorded.works, phases, strict=True)):
        if phase is Phase.UPDATE:
            operands.append((Operand(Role.STATE, state, Access.UPDATE),))
            continue
        is_backward = phase is Phase.BACKWARD
        kind, role = _MADE[is_backward, is_backward and work.role is Role.WEIGHT_GRADIENT]
        made = chain.add(f"{operation.name} {at}", kind, work.output, work.element_type)
        chain.free(before, at)
        read = [Operand(Role.OUTPUT_GRADIENT if is_backward else Role.INPUT, before, Access.READ)]
        if not is_backward and work.work is not None:
            sizes = operation.dims[1] if operation.name == CONVOLUTION else max(operation.dims[-3:], key=math.prod)
            weights = chain.add(f"weights {at}", BufferKind.WEIGHTS, sizes, work.element_type, given=True)
            read.append(Operand(Role.WEIGHTS, weights, Access.READ))
        operands.append((*read, Operand(role, made, Access.WRITE)))
        before = made
    return StepMemory(
        storages=tuple(chain.storages),
        tensors=tuple(chain.tensors),
        operands=tuple(operands),
        saves=((),) * len(operands),
        note=NO_LIFETIMES,
        lifetimes=False,
    )


_MADE: Final = {
    (False, False): (BufferKind.FEATURE_MAP, Role.OUTPUT),
    (True, False): (BufferKind.GRADIENT_MAP, Role.INPUT_GRADIENT),
    (True, True): (BufferKind.WEIGHT_GRADIENT, Role.WEIGHT_GRADIENT),
}
"""Kind and role of the output, by whether the operation is backward, and whether it sums over the batch."""


@dataclass
class _Chain:
    """Storages with one tensor each, of the same number."""

    storages: list[Storage] = field(default_factory=list)
    tensors: list[Tensor] = field(default_factory=list)

    def add(
        self, name: str, kind: BufferKind, shape: tuple[int, ...], element_type: str = "float32", *, given: bool = False
    ) -> int:
        nbytes = math.prod(shape) * ELEMENT_BYTES[element_type]
        self.storages.append(Storage(name, kind, nbytes, element_type, given))
        self.tensors.append(Tensor(len(self.tensors), shape, element_type))
        return len(self.tensors) - 1

    def free(self, number: int, position: int) -> None:
        """Set after which operation it is freed, unless it is given."""
        if not self.storages[number].given:
            self.storages[number] = msgspec.structs.replace(self.storages[number], freed_after=position)
