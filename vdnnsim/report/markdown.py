"""Rendering of documents as Markdown; texts are escaped unless they are `Ready`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

from vdnnsim.report.document import Block, Bullets, Code, Definitions, Document, Heading, Note, Picture, Prose, Table
from vdnnsim.report.result_table import ResultTable


class Ready(str):
    """Text that is Markdown already."""

    __slots__ = ()


def escape(text: str) -> Ready:
    """Return escaped text; one that is ready as it is."""
    if isinstance(text, Ready):
        return text
    for character in "\\|*<":
        text = text.replace(character, f"\\{character}")
    return Ready(text)


def code(name: str) -> Ready:
    return Ready(f"`{name}`")


def bold(text: str) -> Ready:
    return Ready(f"**{escape(text)}**")


def table(header: Sequence[str], rows: Iterable[Sequence[str]], left: int | None = None) -> Ready:
    """Return a table whose first `left` columns are aligned left, the others right; all left by default."""
    return _table(header, rows, [left is not None and number >= left for number in range(len(header))])


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], from_right: Iterable[bool]) -> Ready:
    rule = ["---:" if right else "---" for right in from_right]
    lines: list[Iterable[str]] = [map(escape, header), rule, *(map(escape, row) for row in rows)]
    return Ready("\n".join(f"| {' | '.join(line)} |" for line in lines))


def page(parts: Iterable[str | Block]) -> str:
    return "\n\n".join(part if isinstance(part, str) else _text(part) for part in parts) + "\n"


def table_files(
    files: Sequence[str],
    heading: Sequence[Block],
    pictures: Sequence[tuple[str, bytes]],
    table: ResultTable,
    columns: Mapping[str, str],
) -> dict[str, str | bytes]:
    """Return page, CSV and pictures of a document with one table, by the names of its files behind the manifest.

    The page has `heading` in place of the document's own; `pictures` have titles, `columns` their meanings. Where there
    is nothing to draw there are no pictures.
    """
    assert isinstance(table.shown, Document)
    _, name, csv, *names = files
    drawn = [(title, each, png) for (title, png), each in zip(pictures, names, strict=bool(pictures))]
    below = Heading(f"What do the columns of {csv} mean?"), Definitions(tuple(columns.items()))
    parts = (*heading, *(Picture(title, each) for title, each, _ in drawn), *table.shown.blocks[1:], *below)
    return {name: page(parts), csv: table.to_csv(), **{each: png for _, each, png in drawn}}


def _text(block: Block) -> str:
    match block:
        case Heading(text=text, level=level):
            return Ready(f"{'#' * level} {escape(text)}")
        case Prose(text=text, strong=strong):
            return bold(text) if strong else escape(text)
        case Note(text=text):
            return escape(text)
        case Code(text=text):
            return Ready(f"```\n{text}\n```")
        case Bullets(items=items):
            return Ready("\n".join(f"- {escape(item)}" for item in items))
        case Definitions(meanings=meanings):
            return Ready("\n".join(f"- {code(name)}: {escape(meaning)}" for name, meaning in meanings))
        case Picture(title=title, name=name):
            return Ready(f"![{escape(title)}]({name})")
        case Table(columns=columns):
            titles = [column.full_title for column in columns]
            return _table(titles, block.rows, [column.from_right for column in columns])
        case _:
            assert_never(block)
