from vdnnsim.report import markdown
from vdnnsim.report.document import Definitions, Heading, Picture, section


def test_texts_have_no_meaning_and_what_is_ready_has() -> None:
    assert markdown.escape("a|b *c* <d> \\") == "a\\|b \\*c\\* \\<d> \\\\"
    assert markdown.escape(markdown.bold("a*")) == "**a\\***"
    assert markdown.page((Heading("1 < 2", 3), Picture("*x*", "x.png"))) == "### 1 \\< 2\n\n![\\*x\\*](x.png)\n"


def test_a_table_reads_numbers_from_the_right() -> None:
    rows = [("a|b", "1"), (markdown.code("c*"), "2")]

    assert markdown.table(("name", "number"), rows, left=1).splitlines() == [
        "| name | number |",
        "| --- | ---: |",
        "| a\\|b | 1 |",
        "| `c*` | 2 |",
    ]
    assert markdown.table(("name", "number"), ()).splitlines()[1] == "| --- | --- |"


def test_a_section_without_lines_is_left_out() -> None:
    sections = (*section("Why?", ()), *section("What?", ("this", "that*")))

    assert markdown.page((*sections, Definitions((("a", "b*"),)))) == ("## What?\n\n- this\n- that\\*\n\n- `a`: b\\*\n")
