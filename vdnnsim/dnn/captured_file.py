"""Files of captured steps, `NAME.step.json`: reading, with all checks of `vdnnsim.dnn.captured_check`, and writing.

A file may come from anybody; reading it executes nothing.
"""

import hashlib
import re
from pathlib import Path
from typing import Any, Final

import msgspec

from vdnnsim.dnn.captured_check import check_captured_step
from vdnnsim.dnn.captured_step import VERSION, CapturedStep
from vdnnsim.errors import ScenarioError
from vdnnsim.files.atomic import replace_file
from vdnnsim.files.messages import LONGEST_SHOWN, file_name, one_line
from vdnnsim.files.regular import UnreadableError, read_regular_file
from vdnnsim.files.value import Entry

LARGEST_FILE_BYTES: Final = 128 * 2**20
"""Some 200,000 operations; networks of billions of parameters have a few thousand."""
_WRITER: Final = "expected a captured step, as `vdnnsim capture` writes it"
_PLACE: Final = re.compile(r" - at `(?:key in )?\$\.?([^`]*)`$")


class _Header(msgspec.Struct):
    """The keys that are read first, since another version may have other keys."""

    version: Any = None
    operations: Any = None


def read_captured_step(path: Path) -> tuple[CapturedStep, str]:
    """Read a captured step, and return it with the SHA-256 of its file.

    Raises:
        ScenarioError: the file cannot be read, is larger than 128 MiB, or is no consistent step of this version.
    """
    name = file_name(path)
    try:
        data = read_regular_file(path, LARGEST_FILE_BYTES, _WRITER)
        header = msgspec.json.decode(data, type=_Header)
        _check_header(header, name)
        step = msgspec.json.decode(data, type=CapturedStep)
    except UnreadableError as failure:
        raise ScenarioError(f"{name}: {failure}") from failure
    except msgspec.ValidationError as failure:
        raise ScenarioError(f"{name}: {_message(failure)}") from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as failure:
        raise ScenarioError(f"{name}: is not JSON: {_cut(str(failure))}; {_WRITER}") from None
    check_captured_step(step, name)
    return step, hashlib.sha256(data).hexdigest()


def write_captured_step(step: CapturedStep, path: Path) -> None:
    """Write a captured step, the same bytes for the same step.

    Raises:
        ScenarioError: it is inconsistent, so it could not be read.
        OutputError: the file cannot be written.
    """
    name = file_name(path)
    check_captured_step(step, name)
    replace_file(path, msgspec.json.encode(msgspec.to_builtins(step, str_keys=True), order="deterministic"))


def _check_header(header: _Header, name: str) -> None:
    if header.version is None or header.operations is None:
        missing = "version" if header.version is None else "operations"
        raise ScenarioError(f"{name}: found JSON without {missing!r}, {_WRITER}")
    if type(header.version) is not int or header.version != VERSION:
        version = Entry(name, "version", header.version, ScenarioError)
        raise version.expected(f"{VERSION}, the version that this vdnnsim reads")


def _message(failure: msgspec.ValidationError) -> str:
    text = one_line(str(failure))
    found = _PLACE.search(text)
    message = _cut(_PLACE.sub("", text))
    message = message[:1].lower() + message[1:]
    return f"{found[1]}: {message}" if found and found[1] else f"{message}; {_WRITER}"


def _cut(text: str) -> str:
    line = one_line(text)
    return line if len(line) <= 2 * LONGEST_SHOWN else f"{line[: 2 * LONGEST_SHOWN]}..."
