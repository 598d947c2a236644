r"""Kernel tables as CSV files: UTF-8, \n at line ends, one row for each shape and algorithm, in one fixed order.

    operator,phase,batch_size,element_type,inputs,gradients,algorithm,family,time_s,spread_fraction,...
    conv 64 3x3 stride 1x1 padding 1x1 bias,backward data,64,float32,64x224x224,w,pytorch,,0.0123,0.01,...

`inputs` are C x H x W, joined by `+` where there are several. `time_s` is empty where a measurement failed, and `note`
says why then. Floats are written so that reading gives the same float, so equal rows make equal bytes. A table is read
strictly, for a row that is misread would time kernels wrongly and say nothing.
"""

import csv
import hashlib
import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import astuple
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from vdnnsim.cost.kernel_table import GRADIENT_LETTERS, KINDS, OPTIMIZERS, KernelRow, KernelShape
from vdnnsim.cost.operator_text import read_operator
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.element_type import ElementType
from vdnnsim.entry import LONGEST_TEXT
from vdnnsim.errors import ProfileError
from vdnnsim.hardware.server import MeasuredKernels, Origin
from vdnnsim.messages import file_name, not_one_of, one_line, quote

if TYPE_CHECKING:
    import _csv

Choice = TypeVar("Choice", bound=Enum)

COLUMNS: Final = (
    *("operator", "phase", "batch_size", "element_type", "inputs", "gradients"),
    *("algorithm", "family", "time_s", "spread_fraction", "timed_runs", "workspace_bytes"),
    *("flop", "moved_bytes", "origin", "note"),
)
MOST_ROWS: Final = 100_000
_LARGEST_BYTES: Final = 64 * 2**20
_SHAPE_COLUMNS: Final = 6
_COUNT = re.compile(r"0|[1-9][0-9]{0,18}")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_INPUT = re.compile(r"(?:([1-9][0-9]{0,9})x)?([1-9][0-9]{0,9})x([1-9][0-9]{0,9})x([1-9][0-9]{0,9})")


class _WrongCellError(Exception):
    """A cell that cannot be; the message lacks file and line."""


def kernel_table_text(rows: Iterable[KernelRow]) -> str:
    """Return a table as CSV text, its rows in the order of their cells whatever order they come in."""
    cells = sorted(map(_cells, rows))
    keys = [(*row[:_SHAPE_COLUMNS], row[COLUMNS.index("algorithm")]) for row in cells]
    assert len(keys) == len(set(keys)), "two rows for one shape and algorithm"
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(cells)
    return text.getvalue()


def read_kernel_table(path: Path) -> tuple[KernelRow, ...]:
    """Read a table.

    Raises:
        ProfileError: the file cannot be read, or a row of it is wrong; the message names the line.
    """
    return _parse(path, _read_bytes(path))


def read_measured_kernels(kernels: MeasuredKernels) -> tuple[KernelRow, ...]:
    """Read the table of a profile.

    Raises:
        ProfileError: as `read_kernel_table`, or the table is no longer what it was when the profile was read.
    """
    data = _read_bytes(kernels.table)
    if hashlib.sha256(data).hexdigest() != kernels.sha256:
        raise ProfileError(f"{file_name(kernels.table)}: has changed since its profile was read, expected it to stay")
    return _parse(kernels.table, data)


def _cells(row: KernelRow) -> tuple[str, ...]:
    shape = row.shape
    return (
        *(shape.operator, shape.phase.value, str(shape.batch_size), shape.element_type.value),
        *(shape.inputs_text, shape.gradients, row.algorithm, row.family),
        *("" if row.seconds is None else repr(row.seconds), repr(row.spread), str(row.count)),
        *(str(row.workspace_bytes), str(row.flop), str(row.nbytes), row.origin.value, row.note),
    )


def _read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_BYTES + 1)
    except OSError as failure:
        reason = (failure.strerror or "unknown error").lower()
        raise ProfileError(f"{file_name(path)}: cannot be read: {reason}; expected a table of kernels") from None
    if len(data) > _LARGEST_BYTES:
        raise ProfileError(f"{file_name(path)}: is larger than {_LARGEST_BYTES // 2**20} MiB")
    return data


def _parse(path: Path, data: bytes) -> tuple[KernelRow, ...]:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        line = data.count(b"\n", 0, failure.start) + 1
        raise ProfileError(f"{file_name(path)}: line {line}: byte {failure.start} is not UTF-8") from None
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        _check_header(next(lines, []))
        return _rows(lines)
    except _WrongCellError as wrong:
        raise ProfileError(f"{file_name(path)}: line {max(lines.line_num, 1)}: {wrong}") from None
    except csv.Error as wrong:
        raise ProfileError(f"{file_name(path)}: line {lines.line_num}: is not CSV: {one_line(str(wrong))}") from None


def _rows(lines: "_csv.Reader") -> tuple[KernelRow, ...]:
    rows: list[KernelRow] = []
    # Rows of one shape share it, and the lines in which its algorithms stand.
    shapes: dict[tuple[str, ...], tuple[KernelShape, dict[str, int]]] = {}
    for cells in lines:
        if len(cells) != len(COLUMNS):
            raise _WrongCellError(f"found {len(cells)} cells, expected {len(COLUMNS)}")
        if len(rows) == MOST_ROWS:
            raise _WrongCellError(f"found more than {MOST_ROWS} rows")
        key = tuple(cells[:_SHAPE_COLUMNS])
        if key not in shapes:
            shapes[key] = _shape(cells), {}
        shape, seen = shapes[key]
        row = _row(shape, cells)
        if row.algorithm in seen:
            first = seen[row.algorithm]
            raise _WrongCellError(f"algorithm: {quote(row.algorithm)} stands for this shape in line {first} already")
        seen[row.algorithm] = lines.line_num
        rows.append(row)
    if not rows:
        raise _WrongCellError("found no row, expected at least one")
    return tuple(rows)


def _check_header(header: Sequence[str]) -> None:
    if tuple(header) == COLUMNS:
        return
    for column in header:
        if column not in COLUMNS:
            raise _WrongCellError(not_one_of(column, COLUMNS, "a column"))
    raise _WrongCellError(
        f"found the columns {one_line(','.join(header))[:LONGEST_TEXT]!r}, expected {','.join(COLUMNS)}"
    )


def _shape(cells: Sequence[str]) -> KernelShape:
    operator, phase_text, batch_text, type_text, inputs_text, gradients = cells[:_SHAPE_COLUMNS]
    phase = _choice("phase", phase_text, Phase)
    if (batch_size := _count("batch_size", batch_text)) == 0:
        raise _WrongCellError("batch_size: found 0, expected 1 or more")
    inputs = tuple(map(_input, inputs_text.split("+")))
    letters = len(inputs) if phase in (Phase.BACKWARD_DATA, Phase.BACKWARD) else 0
    if len(gradients) != letters or not GRADIENT_LETTERS.issuperset(gradients):
        right = f"{letters} of the letters {', '.join(sorted(GRADIENT_LETTERS))}" if letters else "nothing"
        raise _WrongCellError(f"gradients: found {quote(gradients)}, expected {right} in {phase.value}")
    shape = KernelShape(
        operator=_operator(operator),
        phase=phase,
        batch_size=batch_size,
        element_type=_choice("element_type", type_text, ElementType),
        inputs=inputs,
        gradients=gradients,
    )
    if min(astuple(shape.output)) < 1:
        raise _WrongCellError(f"inputs: found {inputs_text}, which leaves no output of {operator}")
    return shape


def _operator(cell: str) -> str:
    if (kind := cell.partition(" ")[0]) not in KINDS:
        raise _WrongCellError(f"operator: {not_one_of(kind, KINDS, 'an operator')}")
    if cell not in OPTIMIZERS and read_operator(cell) is None:
        raise _WrongCellError(f"operator: found {quote(cell)}, expected {kind} with its parameters and nothing else")
    return cell


def _row(shape: KernelShape, cells: Sequence[str]) -> KernelRow:
    algorithm, family, time_text, spread, runs, workspace, flop, moved, origin, note = cells[_SHAPE_COLUMNS:]
    seconds = _number("time_s", time_text) if time_text else None
    if seconds == 0:
        raise _WrongCellError(f"time_s: found {time_text!r}, expected a time above 0")
    if seconds is None and not note:
        raise _WrongCellError("time_s: found nothing, expected a time, or a note that says why there is none")
    if moved == "0":
        raise _WrongCellError("moved_bytes: found 0, expected 1 or more, for every kernel reads or writes")
    return KernelRow(
        shape=shape,
        algorithm=_text("algorithm", algorithm),
        family=_text("family", family) if family else "",
        seconds=seconds,
        spread=_number("spread_fraction", spread),
        count=_count("timed_runs", runs),
        workspace_bytes=_count("workspace_bytes", workspace),
        flop=_count("flop", flop),
        nbytes=_count("moved_bytes", moved),
        origin=_choice("origin", origin, Origin),
        note=_text("note", note) if note else "",
    )


def _text(column: str, cell: str) -> str:
    if not cell or not cell.isprintable() or len(cell) > LONGEST_TEXT:
        raise _WrongCellError(f"{column}: found {quote(cell)}, expected 1 to {LONGEST_TEXT} printable characters")
    return cell


def _choice(column: str, cell: str, choices: type[Choice]) -> Choice:
    try:
        return choices(cell)
    except ValueError:
        names = [str(choice.value) for choice in choices]
        raise _WrongCellError(f"{column}: {not_one_of(cell, names, 'known')}") from None


def _count(column: str, cell: str) -> int:
    if not _COUNT.fullmatch(cell):
        raise _WrongCellError(f"{column}: found {quote(cell)}, expected a whole number, 0 or more")
    return int(cell)


def _number(column: str, cell: str) -> float:
    if not _NUMBER.fullmatch(cell) or not math.isfinite(number := float(cell)):
        raise _WrongCellError(f"{column}: found {quote(cell)}, expected a finite number, 0 or more")
    return number


def _input(text: str) -> MapShape:
    sizes = _INPUT.fullmatch(text)
    if sizes is None:
        raise _WrongCellError(f"inputs: found {quote(text)}, expected C x H x W, as 64x28x28")
    return MapShape(int(sizes[2]), int(sizes[3]), int(sizes[4]), int(sizes[1] or 1))
