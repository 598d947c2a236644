import io

from rich.console import Console

from vdnnsim.report.fitted_table import FittedTable
from vdnnsim.report.plain_table import plain_table

HEADER = ("name", "parameters", "what_it_is")
ROWS = [("vgg16", "138357544", "sixteen layers, of 3 by 3"), ("[b]", "1", "")]


def printed(table: FittedTable, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_numbers_stand_on_the_right_and_text_is_no_markup() -> None:
    assert printed(plain_table(HEADER, ROWS, ""), 80) == [
        "name   parameters  what_it_is",
        "vgg16   138357544  sixteen layers, of 3 by 3",
        "[b]             1",
    ]


def test_long_text_is_broken_between_words_and_then_left_out() -> None:
    """Beside 5 + 10 and two gaps of 2, text has 19 of 38 characters, and of 34 not the 16 that it needs."""
    assert printed(plain_table(HEADER, ROWS, "--csv FILE writes all"), 38)[1:] == [
        "vgg16   138357544  sixteen layers, of",
        "                   3 by 3",
        "[b]             1",
    ]
    assert printed(plain_table(HEADER, ROWS, "--csv FILE writes all"), 34) == [
        "name   parameters",
        "vgg16   138357544",
        "[b]             1",
        "too narrow for what_it_is; --csv",
        "FILE writes all",
    ]


def test_a_second_column_of_labels_stays_and_a_long_word_is_broken_as_a_label_is() -> None:
    """Of 42 characters 7 and 7 are for labels, 4 for gaps, 24 for text, which takes no less for its word of 32."""
    cells = ("alexnet", "swap(p)", "options_of_twenty_and_seventeen: none")
    table = plain_table(("network", "policy", "note"), [cells], "x")
    assert printed(table, 42)[1:] == [
        "alexnet  swap(p)  options_of_twenty_and_",
        "                  seventeen:",
        "                  none",
    ]
    assert printed(table, 41)[1:] == ["alexnet  swap(p)", "too narrow for note; x"]


def test_what_matters_least_goes_first() -> None:
    assert printed(plain_table(HEADER, ROWS, "x", ("parameters",)), 34)[0].split() == ["name", "what_it_is"]


def test_a_header_is_broken_before_a_column_goes() -> None:
    """Beside `name` and a gap of 2 the last column gets 6 of 12 characters, which is room for 5 of its 10 at a time."""
    assert printed(plain_table(("name", "batch size"), [("a", "80")], "x"), 12) == [
        "      batch",
        "name   size",
        "a        80",
    ]


def test_a_table_may_be_empty() -> None:
    assert printed(plain_table(HEADER, [], ""), 80) == ["name  parameters  what_it_is"]
