import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.report.test_terminal import printed
from vdnnsim.report.document import Column, Fold, Table, plain_table, text_column

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
        *("name  12", "a     34", "too narrow for wide;", "x.csv has all")
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
        if column.title in text.partition("too narrow")[0]:
            assert all(cell in text for cell in column.cells)
        else:
            assert column.title in named.partition("toonarrowfor")[2] or width < len("narrow")
    assert all(len(line) <= width for line in printed(Table(columns, ("text",), "all"), width))


def test_what_is_folded_and_the_same_in_every_row_is_said_once() -> None:
    given = ("a", ("1", "2")), ("same", ("x" * 9,) * 2), ("other", ("y" * 9, "z" * 9))
    columns = tuple(text_column(*each) for each in given)
    assert printed(Table(columns, folded=("same", "other")), 8) == [
        *("a", "1", "  other:", "  yyyyyy", "  yyy", "2", "  other:", "  zzzzzz", "  zzz"),
        *("in every", "row:", "  same:", "  xxxxxx", "  xxx"),
    ]


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
