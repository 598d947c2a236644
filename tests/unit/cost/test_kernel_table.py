import hashlib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.refusals import refusal
from vdnnsim.cost.kernel_table import (
    COLUMNS,
    GRADIENT_LETTERS,
    OPTIMIZERS,
    KernelRow,
    KernelShape,
    kernel_table_text,
    read_kernel_table,
    read_measured_kernels,
)
from vdnnsim.cost.operator_text import operator_text, read_operator
from vdnnsim.dnn.convolutional import Activation, BatchNormalization, Convolution, FullyConnected, Pooling, SoftmaxLoss
from vdnnsim.dnn.elementwise import Cast, Concat, Dropout, ElementwiseAdd, ElementwiseProduct
from vdnnsim.dnn.elementwise import LocalResponseNormalization as Lrn
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.sequences import Attention, Embedding, LayerNormalization, Linear, Lstm, SmoothActivation, Smoothness
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.vision import ClassToken, LearnedPositions, Relu6, TransposedConvolution
from vdnnsim.errors import ProfileError
from vdnnsim.files import csv_table
from vdnnsim.hardware.server import MeasuredKernels, Origin
from vdnnsim.units import ElementType

FORWARD = KernelShape("relu", Phase.FORWARD, 8, ElementType.FLOAT32, (MapShape(64, 28, 28),), "")
ROW = KernelRow(FORWARD, "only", "", 0.0123, 0.01, 30, 0, 401_408, 3_211_264, Origin.MEASURED)
LINE = "relu,forward,8,float32,64x28x28,,only,,0.0123,0.01,30,0,401408,3211264,measured,"
HEADER = ",".join(COLUMNS)

words = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=12)
counts = st.integers(0, 10**18)
times = st.floats(1e-12, 86_400)
spreads = st.floats(0, 1e6)
sizes = st.integers(1, 10**9 - 1)
large = st.integers(10**9 - 1, 10**10 - 1)
"""Sides of maps that every window fits into."""
windows = st.tuples(sizes, sizes)
heads = st.integers(1, 10**8)
operators = st.builds(
    operator_text,
    st.builds(Convolution, sizes, windows, windows, windows, st.booleans(), groups=st.just(1) | sizes)
    | st.builds(Convolution, sizes, st.just((1, 1)), steps=sizes)
    | st.builds(Pooling, windows, windows, windows, average=st.booleans(), steps=st.just(1) | sizes)
    | st.builds(FullyConnected, sizes)
    | st.sampled_from((Activation(), BatchNormalization(), ElementwiseAdd(), Concat(), SoftmaxLoss()))
    | st.sampled_from(
        (ElementwiseProduct(), *map(LayerNormalization, (True, False)), *map(SmoothActivation, Smoothness))
    )
    | st.builds(Dropout, sizes, st.booleans())
    | st.builds(Lrn, sizes)
    | st.builds(Embedding, sizes, sizes, st.just(0) | sizes)
    | st.builds(Linear, sizes, st.booleans(), st.booleans())
    | st.builds(Attention, heads, heads, st.booleans())
    | st.builds(TransposedConvolution, sizes, windows, windows, st.booleans())
    | st.builds(Relu6, st.booleans())
    | st.sampled_from((ClassToken(), LearnedPositions()))
    | st.builds(Cast, st.sampled_from(ElementType), st.booleans())
    | st.builds(Lstm, sizes),
)


@st.composite
def rows(draw: st.DrawFn) -> KernelRow:
    phase = draw(st.sampled_from(Phase))
    inputs = tuple(draw(st.lists(st.builds(MapShape, large, large, large, large), min_size=1, max_size=3)))
    letters = len(inputs) if phase in (Phase.BACKWARD_DATA, Phase.BACKWARD) else 0
    shape = KernelShape(
        operator=draw(operators | st.sampled_from(OPTIMIZERS)),
        phase=phase,
        batch_size=draw(sizes),
        element_type=draw(st.sampled_from(ElementType)),
        inputs=inputs,
        gradients="".join(draw(st.sampled_from(sorted(GRADIENT_LETTERS))) for _ in range(letters)),
    )
    return KernelRow(
        shape=shape,
        algorithm=draw(words),
        family=draw(st.just("") | words),
        seconds=draw(st.none() | times),
        spread=draw(spreads),
        count=draw(st.integers(0, 10**9)),
        workspace_bytes=draw(counts),
        flop=draw(counts),
        nbytes=draw(counts) + 1,
        origin=draw(st.sampled_from(Origin)),
        note=draw(words),
        issue_s=draw(st.none() | times),
    )


def write(folder: Path, *lines: str) -> Path:
    path = folder / "toy.kernels.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def message_of(path: Path) -> str:
    return refusal(ProfileError, read_kernel_table, path).removeprefix(f"{path}: ")


def test_a_row_is_one_line() -> None:
    assert kernel_table_text([ROW]) == f"{HEADER}\n{LINE}\n"
    assert kernel_table_text([replace(ROW, issue_s=2e-5)]) == f"{HEADER},issue_s\n{LINE},2e-05\n"


@given(table=st.lists(rows(), min_size=1, max_size=5, unique_by=lambda row: (row.shape, row.algorithm)))
def test_written_rows_read_back_in_any_order(tmp_path_factory: pytest.TempPathFactory, table: list[KernelRow]) -> None:
    text = kernel_table_text(table)
    path = tmp_path_factory.getbasetemp() / "table.csv"
    path.write_bytes(text.encode())
    read = read_kernel_table(path)
    assert sorted(map(repr, read)) == sorted(map(repr, table))
    assert kernel_table_text(reversed(table)) == text == kernel_table_text(read)


@given(text=operators)
def test_an_operator_is_read_as_it_is_written(text: str) -> None:
    operator = read_operator(text)
    assert operator is not None
    assert operator_text(operator) == text


@pytest.mark.parametrize(
    "text",
    ["attention heads 0 key_value_heads 1", "smooth relu", "conv 4 3x3 stride 1x1 padding 1x1 steps 3", "lstm 5"],
)
def test_unknown_operators_are_none(text: str) -> None:
    assert read_operator(text) is None


@pytest.mark.parametrize(
    ("column", "cell", "message"),
    [
        ("operator", "relo", "operator: 'relo' is not an operator; did you mean"),
        ("operator", "", "operator: '' is not an operator"),
        ("operator", "relu 2", "operator: found 'relu 2'"),
        ("phase", "forwards", "phase: 'forwards' is not known"),
        ("batch_size", "0", "batch_size: found '0'"),
        ("element_type", "float64", "element_type: 'float64' is not known"),
        ("inputs", "64x028x28", "inputs: found '64x028x28', expected C x H x W, as 64x28x28"),
        ("operator", "max_pool 29x1 stride 1x1 padding 0x0", "inputs: found 64x28x28, which leaves no output"),
        ("gradients", "w", "gradients: found 'w', expected nothing in forward"),
        ("algorithm", "", "algorithm: found ''"),
        ("time_s", "nan", "time_s: found 'nan', expected a number from 1e-12 to 86400"),
        ("time_s", "", "time_s: found nothing"),
        ("workspace_bytes", "1_000", "workspace_bytes: found '1_000', expected a whole number from 0 to 2^60"),
        ("moved_bytes", "0", "moved_bytes: found '0', expected a whole number from 1 to 2^60"),
        ("origin", "guessed", "origin: 'guessed' is not known"),
        ("note", "two\u2028lines", "note: found 'two\\u2028lines'"),
    ],
)
def test_a_wrong_cell_is_refused_with_its_line(tmp_path: Path, column: str, cell: str, message: str) -> None:
    cells = LINE.split(",")
    cells[COLUMNS.index(column)] = cell
    path = write(tmp_path, HEADER, LINE.replace("relu", "add"), ",".join(cells))
    assert message_of(path).startswith(f"line 3: {message}")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "line 1: found the columns '', expected operator,phase,"),
        ([HEADER], "line 1: found no row"),
        ([HEADER.replace("time_s", "time_ms"), LINE], "line 1: 'time_ms' is not a column"),
        ([HEADER.replace("time_s,", ""), LINE], "line 1: found the columns 'operator,phase,"),
        ([HEADER, LINE, LINE], "line 3: algorithm: 'only'"),
        ([HEADER, LINE, LINE + ","], "line 3: found 17 cells, expected 16"),
        ([HEADER, '"relu'], "line 2: is not CSV: unexpected end of data"),
        (
            [HEADER, LINE.replace("forward,", "backward data,").replace("28,,", "28,wa,")],
            "line 2: gradients: found",
        ),
    ],
)
def test_a_wrong_table_is_refused_with_its_line(tmp_path: Path, lines: list[str], message: str) -> None:
    assert message_of(write(tmp_path, *lines)).startswith(message)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER)
    path.write_bytes(path.read_bytes() + b"relu\xff\n")
    assert message_of(path) == f"line 2: byte {len(HEADER) + 5} is not UTF-8"
    missing = tmp_path / "missing.csv"
    assert message_of(missing).startswith("cannot be read")


def test_a_table_that_changed_behind_its_profile_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER, LINE)
    kernels = MeasuredKernels(path, hashlib.sha256(path.read_bytes()).hexdigest(), tf32=False, channels_last=False)
    assert read_measured_kernels(kernels) == (ROW,)
    write(tmp_path, HEADER, LINE.replace("0.0123", "0.0124"))
    with pytest.raises(ProfileError, match=r"toy\.kernels\.csv: changed after its profile was read"):
        read_measured_kernels(kernels)


def test_the_number_of_rows_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert csv_table.MOST_ROWS == 100_000
    monkeypatch.setattr(csv_table, "MOST_ROWS", 2)
    path = write(tmp_path, HEADER, *(LINE.replace(",8,", f",{size},") for size in (1, 2, 3)))
    assert message_of(path) == "line 4: found more than 2 rows"


def test_huge_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "huge.csv"
    with path.open("wb") as file:
        file.truncate(64 * 2**20 + 1)
    assert message_of(path).startswith("is larger than 64 MiB")
