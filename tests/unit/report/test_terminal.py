import io
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console, RenderableType

from tests.nested import changed
from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.report.document import Column, Document, Fold, Table, plain_table, text_column
from vdnnsim.report.run.page import result_table
from vdnnsim.report.terminal import rendered, unpadded


def printed(table: Document | Table | RenderableType, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(rendered(table))
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_the_table_in_eighty_columns(result: ScenarioResult) -> None:
    assert printed(result_table(result))[:14] == [
        "toy, batch 1, float16, training on toy GPU with 1000 B (ideal memory model)",
        "No update of the weights is counted: optimizer none",
        "",
        "               time  images  allocated  mean  offload  stalled     speed/",
        "policy   fits     s   per s          B     B        B  of time  unlimited",
        "move(m)  yes   8.00   0.125         60    31       10   50.0 %     75.0 %",
        "keep(p)  NO *  6.00   0.167       1020  1020        0    0.0 %    100.0 %",
        "dyn      yes   8.00   0.125         60    31       10   50.0 %     75.0 %",
        "",
        "Speed: compared with this GPU with unlimited memory, where base(p) keeps",
        "everything",
        "(p): the fastest algorithm of each convolution; (m): the one with the least",
        "workspace",
        "* does not fit; its numbers are of a replay on a GPU without a capacity",
    ]


def test_findings_are_printed_below_the_table(result: ScenarioResult) -> None:
    text = "\n".join(printed(result_table(result), width=400)[11:])
    assert "- Of 3 policies" in text
    assert "- keep(p): backward weights of conv1 asked for 990 B" in text
    assert "- dyn settled on all(m) after 2 passes" in text


def test_a_narrow_terminal_keeps_the_labels(result: ScenarioResult) -> None:
    """The columns take 7 + 4 + 4 + 6 + 9 + 4 + 7 + 7 + 9 = 57 characters and 8 gaps of 2, 73 in all.

    Without the mean of 4 and the offload of 7 and their gaps they take 58. Speed goes before memory.
    """
    lines = printed(result_table(result), width=60)
    assert lines[4:7] == [
        "               time  images  allocated  stalled     speed/",
        "policy   fits     s   per s          B  of time  unlimited",
        "move(m)  yes   8.00   0.125         60   50.0 %     75.0 %",
    ]
    assert lines[9].startswith("not shown: mean allocated, offloaded;")
    assert any("  mean  " in line for line in printed(result_table(result), width=73))
    assert not any("  mean  " in line for line in printed(result_table(result), width=72))
    narrow = printed(result_table(result), width=30)
    assert any("allocated" in line for line in narrow)
    assert not any("speed/" in line for line in narrow)


def test_each_kind_of_memory_has_its_column(result: ScenarioResult) -> None:
    """60 B are allocated, as many reserved, and 260 in the process, with a context of 200: 0.254 of 1024 B.

    The largest number is 1220 B.
    """
    larger = changed(result, "server.gpu", context_bytes=200)
    lines = printed(result_table(larger), width=100)
    assert lines[3].split()[2:5] == ["allocated", "reserved", "process"]
    assert lines[5].split()[4:7] == ["0.0586", "0.0586", "0.254"]
    # Where there is no room beside each other, what decides stands below.
    longer = replace(result.results[0], policy="layrub_hybrid_twice_more")
    narrow = printed(result_table(replace(larger, results=(longer,))), width=20)
    assert "  process: 260 B" in narrow


def test_lines_have_no_blanks_at_their_ends() -> None:
    assert unpadded("a  b  \n\n  c \n") == "a  b\n\n  c\n"


MACHINES = (
    text_column("name", ("page_migration(p)", "base(m)"), Fold.LABEL),
    Column("memory", ("1013.5 MiB", "12.0 GiB"), header="max memory", from_right=False),
    text_column("text", ("asks for 1.99 GiB and finds 1.98 GiB of it free", ""), Fold.WORDS),
    Column("number", ("61100840", "7")),
)


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (
            60,
            [
                "name               max memory  text                  number",
                "page_migration(p)  1013.5 MiB  asks for 1.99 GiB   61100840",
                "                               and finds 1.98 GiB",
                "                               of it free",
                "base(m)            12.0 GiB                               7",
            ],
        ),
        (
            54,
            [
                "name          max memory  text              number",
                "page_         1013.5 MiB  asks for        61100840",
                "migration(p)              1.99 GiB and",
                "                          finds 1.98 GiB",
                "                          of it free",
                "base(m)       12.0 GiB                           7",
            ],
        ),
    ],
)
def test_columns_go_before_a_number_is_cut(width: int, lines: list[str]) -> None:
    """On one line the columns take 17, 10, 47 and 8 characters and 3 gaps of 2, which are 88; at least 12, 10, 16, 8.

    Of 60, where the label takes all it wants, text gets 60 - 6 - 17 - 10 - 8 = 19. Of 54 it gets the 16 that it needs,
    and the label 14, of which its lines take 12.
    """
    assert printed(Table(MACHINES, ("text", "number"), "x.csv has all"), width) == lines


def test_columns_are_dropped_in_order_and_come_back() -> None:
    """Of 22 characters, 12 and 12 are too many: the wide one goes, then the narrow one has room again."""
    columns = (
        text_column("name", ("a",), Fold.LABEL),
        Column("narrow", ("34",), header="12"),
        Column("wide", ("",), header="12345678901234567890"),
    )
    assert printed(Table(columns, ("narrow", "wide"), "x.csv has all"), 22) == [
        *("name  12", "a     34", "not shown: wide; x.csv", "has all")
    ]
    # Rightmost of columns with one title is dropped first.
    columns = (text_column("name", ("a",), Fold.LABEL), text_column("both", ("1",)), text_column("both", ("2",)))
    assert printed(Table(columns, (), "x"), 10)[1] == "a     1"
    # Columns are dropped in the given order.
    assert printed(plain_table(HEADER, ROWS, "x", ("parameters",)), 34)[0].split() == ["name", "what_it_is"]


NUMBER = st.integers(0, 10**9).map(str) | st.floats(0, 1e6).map(lambda value: f"{value:.3f} GiB")


@given(
    rows=st.lists(
        st.tuples(st.text("ab_(,)", min_size=1, max_size=30), NUMBER, NUMBER, NUMBER, st.text("xy ", max_size=60)),
        min_size=1,
        max_size=4,
    ),
    width=st.integers(1, 90),
)
def test_on_no_terminal_a_number_is_cut(rows: list[tuple[str, ...]], width: int) -> None:
    """Every number is printed whole, or its column is named as left out; no line is longer than the terminal."""
    titles, cells = ("label", "first", "second", "third", "text"), list(zip(*rows, strict=True))
    folds = (Fold.LABEL, Fold.NEVER, Fold.NEVER, Fold.NEVER, Fold.WORDS)
    columns = tuple(text_column(t, c, f) for t, c, f in zip(titles, cells, folds, strict=True))
    text = " ".join(printed(Table(columns, ("text",), "all"), width))
    named = re.sub(r"\s", "", text)
    for column in columns[1:4]:
        if column.title in text.partition("not shown")[0]:
            assert all(cell in text for cell in column.cells)
        else:
            assert column.title in named.partition("notshown:")[2] or width < len("shown:")
    assert all(len(line) <= width for line in printed(Table(columns, ("text",), "all"), width))


def test_what_is_folded_and_the_same_in_every_row_is_said_once() -> None:
    given = ("a", ("1", "2")), ("same", ("x" * 9,) * 2), ("other", ("y" * 9, "z" * 9))
    columns = tuple(text_column(*each) for each in given)
    assert printed(Table(columns, folded=("same", "other")), 8) == [
        *("a", "1", "  other:", "  yyyyyy", "  yyy", "2", "  other:", "  zzzzzz", "  zzz"),
        *("in every", "row:", "  same:", "  xxxxxx", "  xxx"),
    ]


def test_of_folded_columns_the_same_ones_make_room_first() -> None:
    """Of 14 characters, 4 + 2 + 4 + 2 + 4 are two too many: `card`, though `time` would be left out before it."""
    rows = (("aaaa", "1 ms", "V100"), ("bbbb", "2 ms", "V100"))
    table = plain_table(("name", "time", "card"), rows, "x", ("time", "card"), folded=("time", "card"))
    assert printed(table, 14) == ["name  time", "aaaa  1 ms", "bbbb  2 ms", "in every row:", "  card: V100"]


HEADER = ("name", "parameters", "what_it_is")
ROWS = [("vgg16", "138357544", "sixteen layers, of 3 by 3"), ("[b]", "1", "")]


def test_numbers_text_headers_and_empty_tables() -> None:
    assert printed(plain_table(HEADER, ROWS, ""), 80) == [
        "name   parameters  what_it_is",
        "vgg16   138357544  sixteen layers, of 3 by 3",
        "[b]             1",
    ]
    # Beside `name` and a gap of 2 the last column gets 6 of 12 characters, which is room for 5 of its 10 at a time.
    lines = printed(plain_table(("name", "batch size"), [("a", "80")], "x"), 12)
    assert lines == ["      batch", "name   size", "a        80"]
    # A table may be empty.
    assert printed(plain_table(HEADER, [], ""), 80) == ["name  parameters  what_it_is"]
