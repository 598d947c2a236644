"""Rendering of documents as HTML by the templates in `report/browser/`; Jinja2 escapes every text.

Pages embed their styles and scripts, and need no network.
"""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from vdnnsim.report.document import Block
from vdnnsim.units import format_bytes, format_seconds

FOLDER: Final = Path(__file__).parent / "browser"
_CODE: Final = re.compile(r"`([^`]+)`")
_LINK: Final = re.compile(r"\[([^]]+)\]\((https?://[^)\s]+)\)|(https?://[^\s)&]+[\w/])")


def fragment(blocks: Iterable[Block]) -> Markup:
    named = [(type(block).__name__.lower(), block) for block in blocks]
    return Markup(environment().get_template("blocks.html.j2").render(blocks=named))  # noqa: S704  # as Jinja2 wrote it


@cache
def environment() -> Environment:
    # Each is rendered once, so optimizing it takes longer than it saves.
    made = Environment(loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined, optimized=False)
    made.trim_blocks = made.lstrip_blocks = True
    made.filters["worded"] = worded
    made.filters["blocks"] = fragment
    made.filters["size"] = format_bytes
    made.filters["duration"] = format_seconds
    made.globals["file"] = _file
    return made


def worded(text: str) -> Markup:
    """Return a text of a document with code and links marked up."""
    marked = _CODE.sub(r"<code>\1</code>", str(escape(text)))
    return Markup(  # noqa: S704  # escaped above, and what is added holds nothing but what was escaped
        _LINK.sub(lambda found: f'<a href="{found[2] or found[3]}">{found[1] or found[3]}</a>', marked)
    )


def _file(name: str) -> Markup:
    return Markup((FOLDER / name).read_text(encoding="utf-8"))  # noqa: S704  # it is ours
