"""Consistency checks of captured steps, beyond their keys and types."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, NoReturn

from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.kernel_work import ConvolutionWork, ProductWork, RecurrentWork
from vdnnsim.dnn.layers import Phase, Stage
from vdnnsim.dnn.step import ELEMENT_BYTES, Access, Operand, StepOperation, Storage
from vdnnsim.dnn.workload import Mode
from vdnnsim.errors import ScenarioError
from vdnnsim.files.messages import not_one_of
from vdnnsim.files.value import LONGEST_TEXT, Entry

MOST_OF_A_KIND: Final = 500_000
"""Modules, storages, tensors or operations of one step."""
LARGEST_BATCH: Final = 1_000_000
LARGEST_SIZE: Final = 2**50
"""Of the bytes of a storage and other sizes: a petabyte."""
LARGEST_WORK: Final = 10**24
"""FLOPs of an operation."""
MOST_DIMENSIONS: Final = 64
MOST_RANKS: Final = 1_000_000
_OF_LAYERS: Final[Mapping[type, Mapping[str, object]]] = {
    Storage: {"stage": Stage.FEATURES, "owner": -1},
    Operand: {"position": 0},
    StepOperation: {"layer": -1, "holds": (), "repeatable": True},
}
"""Fields that only the layer view sets, and their defaults."""
_OF_RECURRENT: Final = {
    **dict.fromkeys(("steps", "input_size", "hidden_size"), (1, LARGEST_SIZE)),
    **dict.fromkeys(("rows", "projected"), (0, LARGEST_SIZE)),
    "layers": (1, 1000),
    "gates": (1, 4),
    "directions": (1, 2),
}
"""The least and the most of each size of recurrent layers."""
_COMPUTES: Final = ("input", "weight", "bias")
_PHASES: Final = (Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE)


def check_captured_step(step: CapturedStep, file: str) -> None:
    """Refuse a step that cannot have been captured; messages call it `file`.

    Raises:
        ScenarioError: a number out of its range, text that is no line of text, a reference to what is not there, an
            operation out of its order, or memory that is read before it is written or freed before it is read.
    """
    _Check(step, file).run()


class _Check:
    def __init__(self, step: CapturedStep, file: str) -> None:
        self._step = step
        self._file = file
        # By storage, the last operation that uses it.
        self._last: dict[int, int] = {}

    def run(self) -> None:
        step = self._step
        self._lengths()
        for place in ("model", "framework", "device", "sample", "optimizer"):
            self._text(getattr(step, place), place)
        for index, note in enumerate(step.notes):
            self._text(note, f"notes[{index}]")
        self._number(step.batch_size, "batch_size", 1, LARGEST_BATCH)
        self._number(step.sample_elements, "sample_elements", 1, LARGEST_SIZE)
        self._number(step.parameters, "parameters", 0, LARGEST_SIZE)
        self._text(step.parallel, "parallel", may_be_empty=True)
        self._number(step.ranks, "ranks", 1, MOST_RANKS)
        self._number(step.pipeline, "pipeline", 1, step.ranks)
        self._number(step.position, "position", 0, step.pipeline - 1)
        self._number(step.micro_batches, "micro_batches", 1, step.batch_size)
        for index, module in enumerate(step.modules):
            self._text(module.path, f"modules[{index}].path", may_be_empty=True)
            self._text(module.kind, f"modules[{index}].kind")
        self._storages()
        self._tensors()
        self._order()
        written = {number for number, storage in enumerate(step.storages) if storage.given}
        for index, operation in enumerate(step.operations):
            self._operation(operation, index)
            self._operands(operation, index, written)
        self._ends()

    def _lengths(self) -> None:
        for place in ("modules", "storages", "tensors", "operations", "notes"):
            count = len(getattr(self._step, place))
            if not (place == "notes" or count) or count > MOST_OF_A_KIND:
                self._wrong(place, f"found {count:,} of them, expected 1 to {MOST_OF_A_KIND:,}")

    def _storages(self) -> None:
        for index, storage in enumerate(self._step.storages):
            place = f"storages[{index}]"
            self._text(storage.name, f"{place}.name")
            self._number(storage.nbytes, f"{place}.nbytes", 0, LARGEST_SIZE)
            self._element_type(storage.element_type, place)
            self._without_layers(storage, place)
            if storage.constant and not storage.given:
                self._wrong(f"{place}.constant", "found true, expected false of what is not given")
            if storage.on_host and (not storage.given or index in self._step.first_use):
                self._wrong(f"{place}.on_host", "found true, expected it of what is given and no operation touches")
            if storage.freed_after is not None:
                self._number(storage.freed_after, f"{place}.freed_after", 0, len(self._step.operations) - 1)

    def _tensors(self) -> None:
        for index, tensor in enumerate(self._step.tensors):
            place = f"tensors[{index}]"
            self._reference(tensor.storage, f"{place}.storage", self._step.storages, "storages")
            self._sizes(tensor.shape, f"{place}.shape")
            self._element_type(tensor.element_type, place)
            self._number(tensor.offset_bytes, f"{place}.offset_bytes", 0, self._step.storages[tensor.storage].nbytes)

    def _order(self) -> None:
        """Forward is first; micro-batches run it and backward in turn; the update is behind all."""
        before: Phase | None = None
        for index, operation in enumerate(self._step.operations):
            if before is None or self._step.mode is Mode.INFERENCE:
                allowed: tuple[Phase, ...] = (Phase.FORWARD,)
            else:
                allowed = (Phase.UPDATE,) if before is Phase.UPDATE else _PHASES
            before = operation.phase
            if before not in allowed:
                what = " or ".join(repr(each.value) for each in allowed)
                self._expected(f"operations[{index}].phase", before, f"{what} here")

    def _operation(self, operation: StepOperation, index: int) -> None:
        place, step = f"operations[{index}]", self._step
        self._text(operation.name, f"{place}.name")
        self._reference(operation.module, f"{place}.module", step.modules, "modules")
        self._element_type(operation.element_type, place)
        self._without_layers(operation, place)
        for kind, flop in operation.flop.items():
            self._number(flop, f"{place}.flop.{kind.value}", 0, LARGEST_WORK)
        self._number(operation.bytes_moved, f"{place}.bytes_moved", 0, LARGEST_SIZE)
        self._number(operation.temporary_bytes, f"{place}.temporary_bytes", 0, LARGEST_SIZE)
        self._number(operation.copied_bytes, f"{place}.copied_bytes", 0, operation.temporary_bytes)
        self._number(operation.sectors.nbytes, f"{place}.sectors.nbytes", 0, LARGEST_SIZE)
        self._number(operation.sectors.window_bytes, f"{place}.sectors.window_bytes", 0, LARGEST_SIZE)
        if (forward := operation.forward) is not None:
            if operation.phase is not Phase.BACKWARD:
                self._expected(f"{place}.forward", forward, f"none of it, for it is of {operation.phase.value}")
            if not 0 <= forward < index:
                self._expected(f"{place}.forward", forward, f"an operation before it, 0 to {index - 1}")
        if (collective := operation.collective) is not None:
            self._number(collective.nbytes, f"{place}.collective.nbytes", 0, LARGEST_SIZE)
            self._number(collective.ranks, f"{place}.collective.ranks", 2 - collective.is_of_host, MOST_RANKS)
            backwards = collective.is_point_to_point and collective.stride < 0
            low, high = (-MOST_RANKS, -1) if backwards else (1, MOST_RANKS)
            self._number(collective.stride, f"{place}.collective.stride", low, high)
            self._element_type(collective.element_type, f"{place}.collective")
        if operation.work is not None:
            self._work(operation.work, f"{place}.work")

    def _operands(self, operation: StepOperation, index: int, written: set[int]) -> None:
        place, step = f"operations[{index}]", self._step
        for position, operand in enumerate(operation.operands):
            self._reference(operand.memory, f"{place}.operands[{position}].tensor", step.tensors, "tensors")
            self._without_layers(operand, f"{place}.operands[{position}]")
            storage = step.tensors[operand.memory].storage
            self._last[storage] = index
            if operand.access.reads and storage not in written:
                self._unwritten(f"{place}.operands[{position}]", storage)
        written.update(
            step.tensors[each.memory].storage for each in operation.operands if each.access is not Access.READ
        )
        for position, storage in enumerate(operation.saves):
            self._reference(storage, f"{place}.saves[{position}]", step.storages, "storages")
            if storage not in written:
                self._unwritten(f"{place}.saves[{position}]", storage)

    def _unwritten(self, place: str, storage: int) -> NoReturn:
        name = self._step.storages[storage].name
        self._wrong(place, f"reads storage {storage} ({name}) before anything wrote it, expected one that is given")

    def _ends(self) -> None:
        for index, storage in enumerate(self._step.storages):
            last, place = self._last.get(index), f"storages[{index}]"
            if last is None and not storage.given:
                self._wrong(place, f"no operation writes {storage.name}, expected one that does, or that it is given")
            if last is not None and storage.freed_after is not None and storage.freed_after < last:
                self._expected(f"{place}.freed_after", storage.freed_after, f"at least {last}, which still touches it")

    def _work(self, work: ConvolutionWork | ProductWork | RecurrentWork, place: str) -> None:
        if isinstance(work, ProductWork):
            for key in ("batch", "m", "n", "k"):
                self._number(getattr(work, key), f"{place}.{key}", 0, LARGEST_SIZE)
            return
        if isinstance(work, RecurrentWork):
            for key, (least, most) in _OF_RECURRENT.items():
                self._number(getattr(work, key), f"{place}.{key}", least, most)
            return
        self._number(work.batch_size, f"{place}.batch_size", 0, LARGEST_SIZE)
        for key in ("input_channels", "output_channels", "groups"):
            self._number(getattr(work, key), f"{place}.{key}", 1, LARGEST_SIZE)
        dimensions = len(work.input_size)
        for key, least in (("input_size", 0), ("kernel", 1), ("stride", 1), ("padding", 0), ("dilation", 1)):
            sizes = getattr(work, key)
            if len(sizes) != dimensions or not 1 <= dimensions <= 3:
                self._wrong(f"{place}.{key}", f"found {len(sizes)} sizes, expected one for each of 1 to 3 dimensions")
            self._sizes(sizes, f"{place}.{key}", least)
        for position, what in enumerate(work.computes):
            if what not in _COMPUTES:
                self._wrong(f"{place}.computes[{position}]", not_one_of(what, _COMPUTES, "what has a gradient"))

    def _sizes(self, sizes: Sequence[int], place: str, least: int = 0) -> None:
        if len(sizes) > MOST_DIMENSIONS:
            self._wrong(place, f"found {len(sizes)} sizes, expected at most {MOST_DIMENSIONS}")
        for position, size in enumerate(sizes):
            self._number(size, f"{place}[{position}]", least, LARGEST_SIZE)

    def _number(self, value: int, place: str, low: int, high: int) -> None:
        if not low <= value <= high:
            self._expected(place, value, f"an integer from {low} to {high}")

    def _reference(self, value: int, place: str, among: Sequence[object], what: str) -> None:
        if not 0 <= value < len(among):
            self._expected(place, value, f"the number of one of the {len(among)} {what}, which begin with 0")

    def _element_type(self, value: str, place: str) -> None:
        if value not in ELEMENT_BYTES:
            self._wrong(f"{place}.element_type", not_one_of(value, ELEMENT_BYTES, "an element type"))

    def _text(self, value: str, place: str, *, may_be_empty: bool = False) -> None:
        least = 0 if may_be_empty else 1
        if not value.isprintable() or not least <= len(value) <= LONGEST_TEXT:
            self._expected(place, value, f"one line of {least} to {LONGEST_TEXT} printable characters")

    def _without_layers(self, each: Storage | Operand | StepOperation, place: str) -> None:
        for key, default in _OF_LAYERS[type(each)].items():
            if getattr(each, key) != default:
                self._wrong(f"{place}.{key}", "is of the view of layers, which nobody captures; expected no such key")

    def _expected(self, place: str, found: Enum | int | str, what: str) -> NoReturn:
        value = str(found.value) if isinstance(found, Enum) else found
        raise Entry(self._file, place, value, ScenarioError).expected(what)

    def _wrong(self, place: str, message: str) -> NoReturn:
        raise Entry(self._file, place, None, ScenarioError).wrong(message)
