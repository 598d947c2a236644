r"""Kernel tables as CSV files: UTF-8, \n at line ends, one row for each shape and algorithm, in one fixed order.

    operator,phase,batch_size,element_type,inputs,gradients,algorithm,family,time_s,spread_fraction,...
    conv 64 3x3 stride 1x1 padding 1x1 bias,backward data,64,float32,64x224x224,w,pytorch,,0.0123,0.01,...

`inputs` are C x H x W, joined by `+` where there are several. `time_s` is empty where a measurement failed, and `note`
says why then. Floats are written so that reading gives the same float, so equal rows make equal bytes. A table is read
strictly, for a row that is misread would time kernels wrongly and say nothing.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Final

from vdnnsim.cost.kernel_table import GRADIENT_LETTERS, KINDS, OPTIMIZERS, TORCH_OPERATOR, KernelRow, KernelShape
from vdnnsim.cost.operator_text import read_operator
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.shapes import MapShape
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

COLUMNS: Final = (
    *("operator", "phase", "batch_size", "element_type", "inputs", "gradients"),
    *("algorithm", "family", "time_s", "spread_fraction", "timed_runs", "workspace_bytes"),
    *("flop", "moved_bytes", "origin", "note"),
)
_SHAPE_COLUMNS: Final = 6
_INPUT = re.compile(r"(?:([1-9][0-9]{0,9})x)?([1-9][0-9]{0,9})x([1-9][0-9]{0,9})x([1-9][0-9]{0,9})")


def kernel_table_text(rows: Iterable[KernelRow]) -> str:
    """Return a table as CSV text, its rows in the order of their cells whatever order they come in."""
    cells = sorted(map(_cells, rows))
    keys = [(*row[:_SHAPE_COLUMNS], row[COLUMNS.index("algorithm")]) for row in cells]
    assert len(keys) == len(set(keys)), "two rows for one shape and algorithm"
    return table_text(COLUMNS, cells)


def read_kernel_table(path: Path) -> tuple[KernelRow, ...]:
    """Read a table.

    Raises:
        ProfileError: the file cannot be read, or a row of it is wrong; the message names the line.
    """
    return parse_table(path, read_table(path), COLUMNS, _rows)


def read_measured_kernels(kernels: MeasuredKernels) -> tuple[KernelRow, ...]:
    """Read the table of a profile.

    Raises:
        ProfileError: as `read_kernel_table`, or the table is no longer what it was when the profile was read.
    """
    data = read_table(kernels.table)
    if hashlib.sha256(data).hexdigest() != kernels.sha256:
        raise ProfileError(f"{file_name(kernels.table)}: has changed since its profile was read, expected it to stay")
    return parse_table(kernels.table, data, COLUMNS, _rows)


def _cells(row: KernelRow) -> tuple[str, ...]:
    shape = row.shape
    return (
        *(shape.operator, shape.phase.value, str(shape.batch_size), shape.element_type.value),
        *(shape.inputs_text, shape.gradients, row.algorithm, row.family),
        *("" if row.seconds is None else repr(row.seconds), repr(row.spread), str(row.count)),
        *(str(row.workspace_bytes), str(row.flop), str(row.nbytes), row.origin.value, row.note),
    )


def _rows(lines: Lines) -> Iterator[KernelRow]:
    # Rows of one shape share it, and the lines in which its algorithms stand.
    shapes: dict[tuple[str, ...], tuple[KernelShape, dict[str, int]]] = {}
    for line, cells in lines:
        key = tuple(cells[:_SHAPE_COLUMNS])
        if key not in shapes:
            shapes[key] = _shape(cells), {}
        shape, seen = shapes[key]
        row = _row(shape, cells)
        if row.algorithm in seen:
            first = seen[row.algorithm]
            raise WrongCellError(f"algorithm: {quote(row.algorithm)} stands for this shape in line {first} already")
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
    algorithm, family, time_text, spread, runs, workspace, flop, moved, origin, note = cells[_SHAPE_COLUMNS:]
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
    )


def _input(text: str) -> MapShape:
    sizes = _INPUT.fullmatch(text)
    if sizes is None:
        raise WrongCellError(f"inputs: found {quote(text)}, expected C x H x W, as 64x28x28")
    return MapShape(int(sizes[2]), int(sizes[3]), int(sizes[4]), int(sizes[1] or 1))
