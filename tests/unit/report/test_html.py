from vdnnsim.report import markdown
from vdnnsim.report.document import (
    Bullets,
    Definitions,
    Heading,
    Note,
    Picture,
    Prose,
    Table,
    plain_table,
    section,
    text_column,
)
from vdnnsim.report.html import fragment, worded


def test_text_is_escaped_and_code_and_links_are_marked() -> None:
    assert worded("<b> `a<b` & [us](https://x.org/a)") == (
        '&lt;b&gt; <code>a&lt;b</code> &amp; <a href="https://x.org/a">us</a>'
    )
    assert worded("open at https://ui.perfetto.dev") == (
        'open at <a href="https://ui.perfetto.dev">https://ui.perfetto.dev</a>'
    )
    assert worded("[x](javascript:alert)") == "[x](javascript:alert)"
    # Markdown is escaped unless ready.
    assert markdown.escape("a|b *c* <d> \\") == "a\\|b \\*c\\* \\<d> \\\\"
    assert markdown.escape(markdown.bold("a*")) == "**a\\***"
    assert markdown.page((Heading("1 < 2", 3), Picture("*x*", "x.png"))) == "### 1 \\< 2\n\n![\\*x\\*](x.png)\n"


def test_every_block_has_its_element_and_tables_their_marks() -> None:
    blocks = (
        Heading("What?", 2),
        Prose("one\n\ntwo", strong=True),
        Note("of less weight"),
        Bullets(("first", "second")),
        Definitions((("name", "meaning"),)),
        Picture("it says", "x.png"),
        plain_table(("name", "number"), [("<a>", "1")]),
    )
    text = " ".join(fragment(blocks).split())
    for part in (
        "<h3>What?</h3>",
        '<p class="strong">one</p> <p class="strong">two</p>',
        '<p class="note">of less weight</p>',
        "<ul><li>first</li><li>second</li></ul>",
        "<dl><dt>name</dt><dd>meaning</dd></dl>",
        '<img src="x.png" alt="it says">',
        '<th scope="col">name</th><th scope="col" class="n">number</th>',
        '<td>&lt;a&gt;</td><td class="n">1</td>',
    ):
        assert part in text
    # Rows of less weight are marked.
    table = Table((text_column("name", ("a", "b")),), dim=(False, True))
    assert fragment((table,)).count('<tr class="dim">') == 1
    # A table reads numbers from the right.
    rows = [("a|b", "1"), (markdown.code("c*"), "2")]
    assert markdown.table(("name", "number"), rows, left=1).splitlines() == [
        "| name | number |",
        "| --- | ---: |",
        "| a\\|b | 1 |",
        "| `c*` | 2 |",
    ]
    assert markdown.table(("name", "number"), ()).splitlines()[1] == "| --- | --- |"
    # A section without lines is left out.
    sections = (*section("Why?", ()), *section("What?", ("this", "that*")))
    assert markdown.page((*sections, Definitions((("a", "b*"),)))) == ("## What?\n\n- this\n- that\\*\n\n- `a`: b\\*\n")
