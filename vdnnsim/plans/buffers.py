"""The buffers of an iteration, one for each storage of the workload's step, and the operands of each kernel."""

from collections.abc import Hashable
from copy import copy
from functools import cached_property

from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import Access, BufferKind, Operand, Role, Step, Storage, WeightGradients
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.schedule import Run, runs_of
from vdnnsim.plans.training_plan import Buffer


class IterationBuffers:
    """Buffers by number, those of storages first, then what a policy adds; a plan begins with them.

    Attributes:
        maps: buffer of feature map i.
        gradients: buffer of the gradient of feature map i, for those that have one.
        on_host: those that are on the host while no kernel uses them.
        resident: those live between iterations (W, optimizer states) or throughout one (dW, batch statistics), with
            the index of their layer.
    """

    def __init__(self, workload: Workload, on_host: frozenset[int] = frozenset()) -> None:
        """Number the storages of a workload.

        On the host are optimizer states that are given there, and weight gradients between backward and update, beside
        what the step has there throughout.
        """
        self._step = workload.step
        self.on_host = on_host | {number for number, each in enumerate(self._step.storages) if each.on_host}
        # Kinds that training writes for its backward, and that it writes and holds to its end.
        self._brief = {BufferKind.STATISTICS} if workload.is_training else set()
        drops = workload.is_training and workload.weight_gradients is WeightGradients.DROPPED
        self._made = {BufferKind.WEIGHT_GRADIENT} if drops else set()
        self._operands: dict[tuple[int, Phase, int, bool, bool], tuple[Operand, ...]] = {}
        self._touched: dict[tuple[int, Phase, int | None, bool, bool, bool], tuple[list[int], list[int]]] = {}
        storages = self._step.storages
        self.buffers = [
            Buffer(
                each.name, each.kind, each.nbytes, each.stage, each.given, number, each.given and number in self.on_host
            )
            for number, each in enumerate(storages)
        ]
        maps = {each.owner: number for number, each in enumerate(storages) if each.kind is BufferKind.FEATURE_MAP}
        self.maps = [maps[index] for index in range(len(maps))]
        self.gradients = {
            each.owner: number for number, each in enumerate(storages) if each.kind is BufferKind.GRADIENT_MAP
        }
        passing = (BufferKind.FEATURE_MAP, BufferKind.GRADIENT_MAP, BufferKind.WORKSPACE)
        self.resident = [(number, each.owner) for number, each in enumerate(storages) if each.kind not in passing]

    def anew(self) -> "IterationBuffers":
        """Return the buffers of storages alone, with what is known of the operands of kernels."""
        found = copy(self)
        found.buffers = self.buffers[: len(self._step.storages)]
        return found

    def add(self, buffer: Buffer) -> int:
        """Add a buffer that is no storage of the step, and return its number."""
        self.buffers.append(buffer)
        return len(self.buffers) - 1

    def held(self, *, with_statistics: bool) -> list[tuple[int, int]]:
        """Return the buffers held throughout and their layers, with the statistics of training or without.

        Not held are weight gradients that are dropped, which live from backward on, unlike the buckets of a captured
        rank, and what is on the host meanwhile.
        """
        others = self._made if with_statistics else self._made | self._brief
        return [
            (buffer, owner)
            for buffer, owner in self.resident
            if self.buffers[buffer].kind not in others or is_bucket(self._step.storages[buffer])
            if buffer not in self.on_host
        ]

    @property
    def results(self) -> frozenset[int]:
        """Return the buffers that live from backward to the end: weight gradients that are dropped after the update."""
        made = frozenset(buffer for buffer, _ in self.resident if self.buffers[buffer].kind in self._made)
        return frozenset(each for each in made - self.on_host if not is_bucket(self._step.storages[each]))

    def nbytes(self, buffer: int) -> int:
        return self.buffers[buffer].nbytes

    def operands(self, run: Run) -> tuple[Operand, ...]:
        """Return the operands of one operation of a phase of a layer, the workspace aside.

        Parts of the batch after the first accumulate weight gradients.
        """
        key = run.layer.index, run.phase, run.operation or 0, run.part > 1, run.gathered
        if key not in self._operands:
            again = self.gathered_again if run.gathered else {}
            read = ((each, self._step.tensors[each.memory].storage) for each in run.of(self._step).operands)
            # `replace` takes several times as long, and each plan does this for every operand.
            self._operands[key] = tuple(
                Operand(
                    each.role,
                    storage if each.access.writes else again.get(storage, storage),
                    Access.UPDATE if run.part > 1 and _is_sum(each) else each.access,
                    each.position,
                )
                for each, storage in read
            )
        return self._operands[key]

    @cached_property
    def gathered_again(self) -> dict[int, int]:
        """By buffer that holds weights as forward gathered them, one in which backward gathers the same."""
        return _gathered_again(self._step)

    def touched(self, run: Run) -> tuple[list[int], list[int]]:
        """Return the buffers that a run reads or holds and those that it writes, the workspace aside.

        Of several operations, what an earlier one writes is not read. A recomputation holds nothing.
        """
        key = run.layer.index, run.phase, run.operation, run.part > 1, run.repeat > 0, run.gathered
        if key not in self._touched:
            reads: list[int] = []
            writes: list[int] = []
            for single in runs_of(run, self._step):
                operands = self.operands(single)
                made = [each.memory for each in operands if each.access.writes]
                holds = () if run.repeat else (each for each in single.of(self._step).holds if each not in made)
                found = (*(each.memory for each in operands if each.access.reads), *holds)
                reads += (each for each in found if each not in writes)
                writes += made
            self._touched[key] = reads, writes
        return self._touched[key]


def is_bucket(storage: Storage) -> bool:
    """Return whether DistributedDataParallel reduces gradients in a storage."""
    return storage.constant and storage.kind is BufferKind.WEIGHT_GRADIENT


def states_of_update(step: Step) -> frozenset[int]:
    """Return the states that only the update uses, which excludes that of a gradient scaler."""
    touched: dict[bool, set[int]] = {True: set(), False: set()}
    for operation in step.operations:
        tensors = (step.tensors[each.memory] for each in operation.operands)
        touched[operation.phase is Phase.UPDATE].update(each.storage for each in tensors)
    storages = step.storages
    states = {number for number, each in enumerate(storages) if each.given and each.kind is BufferKind.OPTIMIZER_STATE}
    return frozenset(states & touched[True] - touched[False])


def gradients_of_update(step: Step) -> frozenset[int]:
    """Return the weight gradients that backward writes first and the update reads."""
    first: dict[int, Operand] = {}
    read = set[int]()
    for operation in step.operations:
        for each in operation.operands:
            storage = step.tensors[each.memory].storage
            if operation.phase is Phase.UPDATE:
                read.add(storage)
            else:
                first.setdefault(storage, each)
    made = {number for number, each in first.items() if not each.access.reads}
    kinds = {number for number, each in enumerate(step.storages) if each.kind is BufferKind.WEIGHT_GRADIENT}
    return frozenset(kinds & made & read)


def _is_sum(operand: Operand) -> bool:
    return operand.role is Role.WEIGHT_GRADIENT and operand.access is Access.WRITE


def _gathered_again(step: Step) -> dict[int, int]:
    """Return by storage that forward makes of weights one in which backward has the same content.

    FSDP frees what it gathered for a block's forward, and gathers it anew for its backward, which recomputations there
    read. Their contents are the same where the same operations, which only copy and gather, made them of the same.

    Source: github.com/pytorch/pytorch, torch/distributed/fsdp/_fully_shard/_fsdp_state.py (_pre_forward).
    """
    contents = {number: -1 - number for number, each in enumerate(step.storages) if each.given}
    # By what a content is made of, its number; by storage, whether backward makes it.
    numbers, made = dict[Hashable, int](), dict[int, bool]()
    for operation in step.operations:
        views = [(each.access, step.tensors[each.memory]) for each in operation.operands]
        read = [(contents.get(view.storage), view.offset_bytes, view.shape) for access, view in views if access.reads]
        only_copies = operation.aside or operation.collective is not None or operation.name.startswith("fsdp.")
        for at, (access, view) in enumerate(views):
            if not access.writes:
                continue
            contents.pop(view.storage, None)
            if only_copies and all(content is not None for content, *_ in read):
                key = operation.name, at, view.offset_bytes, view.shape, view.element_type, *read
                contents[view.storage] = numbers.setdefault(key, len(numbers))
                made[view.storage] = operation.phase.is_backward
    gathered = {contents[each]: each for each, is_late in made.items() if is_late and each in contents}
    return {
        each: gathered[contents[each]]
        for each, is_late in made.items()
        if not is_late and each in contents and contents[each] in gathered
    }
