"""Every block of code of the README and of the documentation runs.

Blocks of a page run in their order, in a folder that is empty at first. One that begins with `# NAME` is a file of
this name; files of YAML are checked. Of a block below `<!-- read only: why -->` Python is compiled and commands are
parsed; extras of `pip` and targets of `make` must exist.
"""

import re
import shlex
import sys
import tomllib
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import click
import pytest
from sybil import Example, Sybil
from sybil.parsers.markdown import CodeBlockParser

from tests.command_line import ROOT, vdnnsim
from vdnnsim.cli import cli

FOLDERS = ("docs", "docs/start", "docs/reference")
PAGES = [ROOT / "README.md", *sorted(path for folder in FOLDERS for path in (ROOT / folder).glob("*.md"))]
READ_ONLY = re.compile(r"<!-- read only: [^\n]+ -->\n$")
NAMED = re.compile(r"# ([\w.-]+\.(?:py|yaml))\n")
EXTRA = re.compile(r"\[([a-z,]+)\]")


def is_read_only(example: Example) -> bool:
    return bool(READ_ONLY.search(example.document.text[: example.start]))


def write_named(text: str) -> Path | None:
    """Write a block that is a file; the command line starts in the folder of the page."""
    if (named := NAMED.match(text)) is None:
        return None
    Path(named[1]).write_text(text, encoding="utf-8")
    return Path(named[1])


def python(example: Example) -> None:
    text = str(example.parsed)
    write_named(text)
    code = compile(text, example.path, "exec")
    if not is_read_only(example):
        exec(code, example.namespace)  # noqa: S102  # our own pages


def yaml(example: Example) -> None:
    path = write_named(str(example.parsed))
    if path is not None:
        vdnnsim("check", str(path))


def shell(example: Example) -> None:
    for line in str(example.parsed).replace("\\\n", "").splitlines():
        words = shlex.split(line, comments=True)
        match words[:1]:
            case ["vdnnsim"] if is_read_only(example):
                parsed(words[1:])
            case ["vdnnsim"]:
                vdnnsim(*words[1:], folder=Path())
            case ["pip"]:
                extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
                assert {each for names in EXTRA.findall(line) for each in names.split(",")} <= extras.keys()
            case ["make"]:
                assert f"\n{words[1]}:" in (ROOT / "Makefile").read_text()
            case _:
                assert words[:1] == ["eval"], line


def parsed(words: list[str]) -> None:
    name, command, context = cli.resolve_command(click.Context(cli), words)
    assert name is not None
    assert command is not None
    command.make_context(name, context)


BLOCKS: dict[str, Callable[[Example], None]] = {"python": python, "yaml": yaml, "sh": shell}


@pytest.mark.usefixtures("in_a_fork")
@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsers = [CodeBlockParser(language, run) for language, run in BLOCKS.items()]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with chdir(tmp_path):
        for example in Sybil(parsers, path=str(ROOT)).parse(page):
            example.evaluate()


def test_every_block_is_of_a_language_that_is_run() -> None:
    languages = {each for page in PAGES for each in re.findall(r"^```([^\n{]+)$", page.read_text(), re.MULTILINE)}
    assert languages <= BLOCKS.keys()


def test_no_line_begins_with_a_comment_of_myst() -> None:
    """It leaves out lines that begin with a percent sign, so that a number may lose its unit where lines break."""
    pages = [*PAGES, ROOT / "LIMITS.md"]
    assert [path.name for path in pages if re.search(r"^[ ]*%", path.read_text(), re.MULTILINE)] == []
