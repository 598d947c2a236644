"""One hostile input: a folder of valid files, one of them mutated, and the command that reads it.

The command must end with a status of 0, 1 or 2, within 20 s of processor time and 2 GiB, report errors in one line that
names the file, and change none of its inputs. Equal seeds make equal inputs.
"""

import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from random import Random
from types import FrameType
from typing import Final
from unittest.mock import patch

MOST_S: Final = 20
"""Of processor time."""
_WAITS_S: Final = 300
"""Of wall time, for a command that waits."""
MOST_BYTES: Final = 2 * 2**30
_LONGEST_LINE: Final = 3000
_ENDINGS: Final = (0, 1, 2)


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    `prepare` fills the folder, and returns the name of the mutated file and the command that reads it; a message may
    name one of `names` instead of the file.
    """

    name: str
    prepare: "Callable[[Path, Random], tuple[str, Command]]"
    weight: int = 1
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Command:
    """Words of the command line, or a function that raises an InputError; only below `writes` files may change."""

    words: tuple[str, ...] = ()
    call: Callable[[], object] | None = None
    writes: tuple[str, ...] = ()


@dataclass
class Outcome:
    """The outcome of an input: its exit status, -1 where there was none, and violations in `trouble`."""

    kind: str
    seed: int
    command: str = ""
    status: int = -1
    seconds: float = 0.0
    trouble: list[str] = field(default_factory=list)
    said: str = ""


class _TooLongError(BaseException):
    """Not an Exception, so that nothing catches it."""


def attack(kind: Kind, seed: int) -> Outcome:
    outcome, draw = Outcome(kind.name, seed), Random(f"{kind.name} {seed}")  # noqa: S311  # equal draws each time
    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        folder = Path(name)
        file, command = kind.prepare(folder, draw)
        outcome.command = " ".join(command.words) or f"reading {file}"
        before = _content(folder)
        begun = time.process_time()
        with chdir(folder):
            _run(command, outcome)
        outcome.seconds = time.process_time() - begun
        after = _content(folder)
        for path, content in before.items():
            if after.get(path) != content and not path.startswith(command.writes or ("\0",)):
                outcome.trouble.append(f"changed {path}")
    _judge(outcome, (file, *kind.names))
    return outcome


def _run(command: Command, outcome: Outcome) -> None:
    from vdnnsim.cli import main
    from vdnnsim.errors import VdnnsimError

    stderr, path = StringIO(), list(sys.path)
    with redirect_stdout(StringIO()), redirect_stderr(stderr), _limits(), warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            if command.call is None:
                with patch.object(sys, "argv", ["vdnnsim", *command.words]):
                    main()
            else:
                command.call()
            outcome.status = 0
        except SystemExit as end:
            outcome.status = int(end.code or 0)
        except VdnnsimError as refusal:
            outcome.status = 1
            stderr.write(f"vdnnsim: {refusal}\n")
        except _TooLongError:
            outcome.trouble.append(f"no end in {MOST_S} s")
        except BaseException:  # noqa: BLE001  # any of them is a violation
            outcome.trouble.append(traceback.format_exc(limit=-4))
    sys.path[:] = path
    outcome.said = stderr.getvalue()


def _judge(outcome: Outcome, names: tuple[str, ...]) -> None:
    if outcome.trouble:
        return
    if outcome.status not in _ENDINGS:
        outcome.trouble.append(f"exit status {outcome.status}")
    lines = outcome.said.splitlines()
    if outcome.status == 1:
        if sum(line.startswith("vdnnsim: ") for line in lines) != 1 or not lines[-1].startswith("vdnnsim: "):
            outcome.trouble.append(f"says {outcome.said[:300]!r}, expected one line")
        elif not lines[-1].isprintable() or len(lines[-1]) > _LONGEST_LINE:
            outcome.trouble.append(f"says a line of {len(lines[-1])} characters: {lines[-1][:300]!r}")
        elif not any(name in lines[-1] for name in names):
            outcome.trouble.append(f"names no file: {lines[-1][:300]}")
    if "Traceback" in outcome.said or "Warning" in outcome.said:
        outcome.trouble.append(outcome.said[-300:])


@contextmanager
def _limits() -> Iterator[None]:
    def end(_signal: int, _frame: FrameType | None) -> None:
        raise _TooLongError

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    timers = {signal.SIGVTALRM: (signal.ITIMER_VIRTUAL, MOST_S), signal.SIGALRM: (signal.ITIMER_REAL, _WAITS_S)}
    before = {number: signal.signal(number, end) for number in timers}
    for timer, seconds in timers.values():
        signal.setitimer(timer, seconds)
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, hard))
    try:
        yield
    finally:
        for number, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _content(folder: Path) -> Mapping[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
