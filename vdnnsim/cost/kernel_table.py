r"""Kernel tables: measured costs of a machine's kernels as CSV files, one row for each shape and algorithm.

    operator,phase,batch_size,element_type,inputs,gradients,algorithm,family,time_s,spread_fraction,...
    conv 64 3x3 stride 1x1 padding 1x1 bias,backward data,64,float32,64x224x224,w,pytorch,,0.0123,0.01,...

A table stands beside the profile of its machine: UTF-8, \n at line ends, in a fixed order, so that equal rows make
equal bytes. Layers of equal shape share their rows, whichever network they are of. `inputs` are C x H x W, joined by
`+`. `time_s` is empty where a measurement failed, and `note` says why. A last column `issue_s`, what the host takes to
issue the kernel, is there where it was measured. Floats are written so that they read back exactly. Tables are read
strictly, since a misread row would silently time kernels wrongly.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

from vdnnsim.cost.operator_text import OPERATOR_NAMES, operator_text, read_operator
from vdnnsim.dnn.captured_groups import operator_name
from vdnnsim.dnn.elementwise import Concat
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.errors import ProfileError
from vdnnsim.files.csv_table import (
    Lines,
    WrongCellError,
    choice_cell,
    count_cell,
    number_cell,
    parse_table,
    read_table,
    table_text,
    text_cell,
)
from vdnnsim.files.messages import file_name, not_one_of, quote
from vdnnsim.hardware.server import MeasuredKernels, Origin
from vdnnsim.hardware.stated_figure import (
    MEASURED_BATCH,
    MEASURED_BYTES,
    MEASURED_TIME,
    MEASURED_WORK,
    MOVED_BYTES,
    RUNS,
    SPREAD,
)
from vdnnsim.units import ElementType

WRITTEN, ADDED_TO, NOT_COMPUTED = "w", "a", "-"
GRADIENT_LETTERS: Final = frozenset((WRITTEN, ADDED_TO, NOT_COMPUTED))
"""Access of a backward to the gradient of an input."""
OPTIMIZERS: Final = tuple(each.value for each in Optimizer if each is not Optimizer.NONE)
KINDS: Final = (*OPERATOR_NAMES, *OPTIMIZERS)

TORCH_OPERATOR: Final = re.compile(r"torch:[A-Za-z_][A-Za-z0-9_:]{0,99}")
"""An operator of PyTorch, `torch:threshold_backward`, timed by the bytes that it moves; its inputs are its tensors as
vectors, batch included."""

COLUMNS: Final = (
    *("operator", "phase", "batch_size", "element_type", "inputs", "gradients"),
    *("algorithm", "family", "time_s", "spread_fraction", "timed_runs", "workspace_bytes"),
    *("flop", "moved_bytes", "origin", "note"),
)
_ISSUE_COLUMN: Final = "issue_s"
_SHAPE_COLUMNS: Final = 6
_INPUT = re.compile(r"(?:([1-9][0-9]{0,9})x)?([1-9][0-9]{0,9})x([1-9][0-9]{0,9})x([1-9][0-9]{0,9})")


def torch_operator(name: str) -> str:
    """Return an operator of PyTorch as tables have it, `torch:add` of `aten.add_.Tensor` and of `aten::add`."""
    word = operator_name(name)
    return f"torch:{word.rstrip('_') or word}"


@dataclass(frozen=True, slots=True)
class KernelShape:
    """All that the cost of a kernel depends on, machine and algorithm aside.

    Attributes:
        operator: the layer's operator with its parameters, `conv 64 3x3 stride 1x1 padding 1x1 bias`; of an update, the
            optimizer.
        batch_size: images; 1 for an update.
        inputs: shapes of the X of one image; of an update, its weights as one vector.
        gradients: of a backward that computes dX, a letter for each input: `w` its gradient is written, `a` added to
            what stands there, `-` not computed; empty in other phases.
    """

    operator: str
    phase: Phase
    batch_size: int
    element_type: ElementType
    inputs: tuple[MapShape, ...]
    gradients: str

    @classmethod
    def of(cls, workload: Workload, layer: Layer, phase: Phase) -> "KernelShape":
        # A table says for all of its float32 rows whether products took TF32.
        computed = workload.arithmetic_type(layer, phase)
        element_type = ElementType.FLOAT32 if computed is ElementType.TF32 else computed
        if phase is Phase.UPDATE:
            return cls(workload.optimizer.value, phase, 1, element_type, (MapShape(layer.parameters),), "")
        gradients = _gradients(workload, layer) if phase in (Phase.BACKWARD_DATA, Phase.BACKWARD) else ""
        return cls(operator_text(layer.operator), phase, workload.part_size, element_type, layer.in_shapes, gradients)

    @property
    def output(self) -> MapShape:
        """The shape of Y of one image; of an update, its weights as one vector."""
        operator, first = read_operator(self.operator), self.inputs[0]
        match operator:
            case None:
                return first
            case Concat():
                return replace(first, channels=sum(each.channels for each in self.inputs))
            case _:
                # A table may give an operator more inputs than it takes.
                return operator.outputs((first,))[0]

    @property
    def kind(self) -> str:
        """The operator without its parameters, `conv`; of an update, `sgd`."""
        return self.operator.partition(" ")[0]

    @property
    def inputs_text(self) -> str:
        """The inputs as one word: `64x28x28+128x28x28`."""
        return "+".join(map(str, self.inputs))


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One algorithm for one shape, as measured.

    Attributes:
        family: kind of algorithm; empty where unknown.
        seconds: the median; None where the measurement failed, and `note` says why.
        spread: (third quartile - first quartile) / median of the runs.
        count: number of timed runs; 0 for what was not timed.
        workspace_bytes: device memory needed while it runs, beyond its operands.
        flop, nbytes: FLOPs by the direct method and compulsory DRAM traffic, as the workload counts them.
        note: empty, or what a reader should know: `out of memory`.
        issue_s: what the host takes to issue it; None where that is not known.
    """

    shape: KernelShape
    algorithm: str
    family: str
    seconds: float | None
    spread: float
    count: int
    workspace_bytes: int
    flop: int
    nbytes: int
    origin: Origin
    note: str = ""
    issue_s: float | None = None


def describe_kernels(rows: Sequence[KernelRow]) -> str:
    """Return how many rows of a table have which origin: `300 measured, 10 without a time`."""
    found = Counter("without a time" if row.seconds is None else row.origin.value for row in rows)
    return ", ".join(f"{count} {what}" for what, count in found.most_common())


def _gradients(workload: Workload, layer: Layer) -> str:
    maps = workload.graph.maps
    return "".join(
        NOT_COMPUTED if not maps[index].needs_gradient else ADDED_TO if workload.accumulates(layer, index) else WRITTEN
        for index in layer.inputs
    )


def kernel_table_text(rows: Iterable[KernelRow]) -> str:
    """Return a table as CSV text, its rows in the order of their cells whatever order they come in."""
    cells = sorted(map(_cells, rows))
    keys = [(*row[:_SHAPE_COLUMNS], row[COLUMNS.index("algorithm")]) for row in cells]
    assert len(keys) == len(set(keys)), "two rows for one shape and algorithm"
    if any(row[-1] for row in cells):
        return table_text((*COLUMNS, _ISSUE_COLUMN), cells)
    return table_text(COLUMNS, [row[:-1] for row in cells])


def read_kernel_table(path: Path) -> tuple[KernelRow, ...]:
    """Read a table.

    Raises:
        ProfileError: the file cannot be read, or a row of it is wrong; the message names the line.
    """
    return _parsed(path, read_table(path))


def read_measured_kernels(kernels: MeasuredKernels) -> tuple[KernelRow, ...]:
    """Read the table of a profile.

    Raises:
        ProfileError: as `read_kernel_table`, or the table is no longer what it was when the profile was read.
    """
    data = read_table(kernels.table)
    if hashlib.sha256(data).hexdigest() != kernels.sha256:
        raise ProfileError(f"{file_name(kernels.table)}: changed after its profile was read, expected no change")
    return _measured_rows(kernels.table, data)


@lru_cache(maxsize=16)
def _measured_rows(path: Path, data: bytes) -> tuple[KernelRow, ...]:
    return _parsed(path, data)


def _parsed(path: Path, data: bytes) -> tuple[KernelRow, ...]:
    has_issues = data.partition(b"\n")[0].rstrip().endswith(b"," + _ISSUE_COLUMN.encode())
    return parse_table(path, data, COLUMNS + (_ISSUE_COLUMN,) * has_issues, _rows)


def _cells(row: KernelRow) -> tuple[str, ...]:
    shape = row.shape
    return (
        *(shape.operator, shape.phase.value, str(shape.batch_size), shape.element_type.value),
        *(shape.inputs_text, shape.gradients, row.algorithm, row.family),
        *("" if row.seconds is None else repr(row.seconds), repr(row.spread), str(row.count)),
        *(str(row.workspace_bytes), str(row.flop), str(row.nbytes), row.origin.value, row.note),
        "" if row.issue_s is None else repr(row.issue_s),
    )


def _rows(lines: Lines) -> Iterator[KernelRow]:
    # By shape, the line of each algorithm.
    shapes: dict[tuple[str, ...], tuple[KernelShape, dict[str, int]]] = {}
    for line, cells in lines:
        key = tuple(cells[:_SHAPE_COLUMNS])
        if key not in shapes:
            shapes[key] = _shape(cells), {}
        shape, seen = shapes[key]
        row = _row(shape, cells)
        if row.algorithm in seen:
            first = seen[row.algorithm]
            raise WrongCellError(f"algorithm: {quote(row.algorithm)} is given for this shape in line {first} already")
        seen[row.algorithm] = line
        yield row


def _shape(cells: Sequence[str]) -> KernelShape:
    operator, phase_text, batch_text, type_text, inputs_text, gradients = cells[:_SHAPE_COLUMNS]
    phase = choice_cell("phase", phase_text, Phase)
    inputs = tuple(map(_input, inputs_text.split("+")))
    letters = len(inputs) if phase in (Phase.BACKWARD_DATA, Phase.BACKWARD) else 0
    if len(gradients) != letters or not GRADIENT_LETTERS.issuperset(gradients):
        right = f"{letters} of the letters {', '.join(sorted(GRADIENT_LETTERS))}" if letters else "nothing"
        raise WrongCellError(f"gradients: found {quote(gradients)}, expected {right} in {phase.value}")
    shape = KernelShape(
        operator=_operator(operator),
        phase=phase,
        batch_size=count_cell("batch_size", batch_text, MEASURED_BATCH),
        element_type=choice_cell("element_type", type_text, ElementType),
        inputs=inputs,
        gradients=gradients,
    )
    if min(astuple(shape.output)) < 1:
        raise WrongCellError(f"inputs: found {inputs_text}, which leaves no output of {operator}")
    return shape


def _operator(cell: str) -> str:
    if TORCH_OPERATOR.fullmatch(cell):
        return cell
    if (kind := cell.partition(" ")[0]) not in KINDS:
        raise WrongCellError(f"operator: {not_one_of(kind, KINDS, 'an operator')}")
    if cell not in OPTIMIZERS and read_operator(cell) is None:
        raise WrongCellError(f"operator: found {quote(cell)}, expected {kind} with its parameters and nothing else")
    return cell


def _row(shape: KernelShape, cells: Sequence[str]) -> KernelRow:
    algorithm, family, time_text, spread, runs, workspace, flop, moved, origin, note, *issue = cells[_SHAPE_COLUMNS:]
    seconds = number_cell("time_s", time_text, MEASURED_TIME) if time_text else None
    if seconds is None and not note:
        raise WrongCellError("time_s: found nothing, expected a time, or a note that says why there is none")
    return KernelRow(
        shape=shape,
        algorithm=text_cell("algorithm", algorithm),
        family=text_cell("family", family, optional=True),
        seconds=seconds,
        spread=number_cell("spread_fraction", spread, SPREAD),
        count=count_cell("timed_runs", runs, RUNS),
        workspace_bytes=count_cell("workspace_bytes", workspace, MEASURED_BYTES),
        flop=count_cell("flop", flop, MEASURED_WORK),
        nbytes=count_cell("moved_bytes", moved, MOVED_BYTES),
        origin=choice_cell("origin", origin, Origin),
        note=text_cell("note", note, optional=True),
        issue_s=number_cell(_ISSUE_COLUMN, issue[0], MEASURED_TIME) if any(issue) else None,
    )


def _input(text: str) -> MapShape:
    if (sizes := _INPUT.fullmatch(text)) is None:
        raise WrongCellError(f"inputs: found {quote(text)}, expected C x H x W, as 64x28x28")
    return MapShape(int(sizes[2]), int(sizes[3]), int(sizes[4]), int(sizes[1] or 1))
