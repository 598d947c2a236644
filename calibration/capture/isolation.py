"""Captures in a child process, with a cache.

A user's code and PyTorch's C++ may end their process, which becomes an error message here. PyTorch is not imported in
this process. The child imports it and makes the model once, however many captures of the model are asked for.
"""

import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import signal
import subprocess
import sys
import weakref
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final, Protocol

import msgspec

from calibration.capture.card_classes import class_of_card, classes_of
from calibration.capture.request import LIBRARIES, Request
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.errors import CaptureError
from vdnnsim.files.messages import one_line
from vdnnsim.files.user_cache import keep, user_cache

_ROOT: Final = Path(__file__).parents[2]
# Imports our packages from where they are here, without leaving their folder in sys.path; -P leaves out the working
# directory, as for a script.
_START: Final = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); import calibration, vdnnsim; del sys.path[0]; "
    "from calibration.capture.child import main; main()"
)
_LONGEST: Final = 300
"""Characters of a process's last line in a message."""


class Answer(msgspec.Struct, frozen=True):
    """The answer of the child, or of the cache.

    Attributes:
        step: None if it could not be captured.
        error: why not.
        files: the user's files that were imported, by path, with the SHA-256 of each.
    """

    step: CapturedStep | None = None
    error: str = ""
    files: dict[str, str] = {}


class Capturing(Protocol):
    """Captures requests of one model."""

    def answer(self, request: Request) -> Answer:
        """Return the captured step of a request, or why there is none."""


def captured(request: Request, cache: Path | None = None) -> tuple[CapturedStep, Path | None]:
    """Return the captured step of a request; see `captured_together`."""
    (found,) = captured_together((request,), cache)
    return found


def captured_together(
    requests: Sequence[Request],
    cache: Path | None = None,
    *,
    process: Capturing | None = None,
) -> tuple[tuple[CapturedStep, Path | None], ...]:
    """Return captured steps, each from the cache if request, files and versions are the same.

    Args:
        requests: what to capture, of one model.
        cache: a folder; by default `vdnnsim/capture` in the user's cache.
        process: which may have captured the model before; by default a new one.

    Returns:
        each step, and the file of the cache that it was read from; none from one on that cannot be captured.

    Raises:
        CaptureError: the first cannot be captured, or the child process failed.
        ProfileError, DeviceError: the profile's card cannot be pretended, or none can here.
    """
    for request in requests:
        request.check()
    process = process or CapturingProcess()
    steps: list[tuple[CapturedStep, Path | None]] = []
    for request in requests:
        folder = cache or user_cache("capture")
        if (kept := _kept(request, folder)) is not None:
            steps.append(kept)
        else:
            answer = process.answer(request)
            if answer.step is None:
                if not steps:
                    raise CaptureError(answer.error)
                break
            steps.append((answer.step, None))
            keep(_file(_alike(request, answer.step), folder), msgspec.json.encode(answer))
    return tuple(steps)


def file_sha256(path: str) -> str:
    """Return the SHA-256 of a file; empty if it cannot be read."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


class CapturingProcess:
    """A child process that captures requests of one model; it begins with the first request, and ends with this."""

    def __init__(self) -> None:
        self._begun: _Begun | None = None

    def answer(self, request: Request) -> Answer:
        """Return the captured step of a request, or why there is none.

        Raises:
            CaptureError: the process ended, or PyTorch is not installed.
            ProfileError, DeviceError: the profile's card cannot be pretended, or none can here.
        """
        if self._begun is None:
            self._begun = _Begun(request)
            self._end = weakref.finalize(self, self._begun.end)
        line, said = self._begun.line_for(request)
        try:
            answer = msgspec.json.decode(line, type=Answer)
        except msgspec.DecodeError:
            begun, self._begun = self._begun, None
            status = begun.process.wait()
            words = _last_words(said + begun.said())
            self._end()
            raise CaptureError(f"{request.model}: {_end(status)}{words}") from None
        # After a failure its one line is enough.
        if said and answer.step is not None and sys.stderr is not None:
            sys.stderr.write(said)
        return answer


class _Begun:
    def __init__(self, request: Request) -> None:
        if importlib.util.find_spec("torch") is None:
            raise CaptureError("capture needs PyTorch, which is not installed: pip install 'vdnnsim[calibrate]'")
        asked, asking = os.pipe()
        telling, told = os.pipe()
        self._asking, self._telling = os.fdopen(asking, "wb"), os.fdopen(telling, "rb")
        # A file without a name, which does not stay if this process is killed.
        self._log: IO[bytes] = TemporaryFile()  # noqa: SIM115 - closed by `end`
        self._read = 0
        self.process = subprocess.Popen(  # noqa: S603 - this interpreter, which runs the user's code
            [sys.executable, "-P", "-c", _START, str(_ROOT), str(asked), str(told)],
            env=_variables_of(request.pretended) if request.pretended else None,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr.fileno() if _has_descriptor() else subprocess.DEVNULL,
            stderr=self._log,
            pass_fds=(asked, told),
        )
        os.close(asked)
        os.close(told)

    def line_for(self, request: Request) -> tuple[bytes, str]:
        """Return the line that answers a request, empty where the process ended, and what it printed meanwhile."""
        # It may have ended since the last answer.
        with suppress(BrokenPipeError):
            self._asking.write(msgspec.json.encode(request) + b"\n")
            self._asking.flush()
        line = self._telling.readline()
        return line, self.said()

    def said(self) -> str:
        """Return what the process printed since it was asked last."""
        # The child moves the position that it shares.
        said = os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size - self._read, self._read)
        self._read += len(said)
        return said.decode("utf-8", "replace")

    def end(self) -> None:
        """End the process, which waits for a request, or captures one that is asked for no more."""
        self.process.kill()
        self.process.wait()
        with suppress(BrokenPipeError):
            self._asking.close()
        self._telling.close()
        self._log.close()


def _has_descriptor() -> bool:
    try:
        return sys.stderr.fileno() >= 0
    except (AttributeError, OSError, ValueError):  # none, or one that a test or a notebook put there
        return False


def _end(status: int) -> str:
    """Return how a process ended without an answer."""
    if status >= 0:
        return f"the process that captures it ended itself with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    more = ", as Linux does where memory runs out" if name == "SIGKILL" else ""
    return f"the process that captures it was ended by {name}{more}; PyTorch's C++ or a library of the model's failed"


def _last_words(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    last = next((line for line in lines if "what():" in line), lines[-1] if lines else "")
    return f": {one_line(last)[:_LONGEST]}" if last else ""


def _kept(request: Request, folder: Path) -> tuple[CapturedStep, Path] | None:
    """Return a step of the cache and its file, unless an imported file has changed."""
    for alike in classes_of(request.compute_capability):
        asked = msgspec.structs.replace(request, compute_capability=alike)
        file = _file(asked, folder)
        try:
            answer = msgspec.json.decode(file.read_bytes(), type=Answer)
        except (OSError, msgspec.DecodeError):
            continue
        if answer.step is None or any(file_sha256(path) != digest for path, digest in answer.files.items()):
            continue
        if _alike(request, answer.step) != asked:
            continue
        # The time of use, for `keep`.
        with suppress(OSError):
            os.utime(file)
        if request.runs:
            return answer.step, file
        return msgspec.structs.replace(answer.step, device="cuda {}.{}".format(*request.compute_capability)), file
    return None


def _alike(request: Request, step: CapturedStep) -> Request:
    """Return the request by which a step is kept: of all cards for which it is the same."""
    if request.runs:
        return request
    return msgspec.structs.replace(request, compute_capability=class_of_card(step, request.compute_capability))


def _file(request: Request, folder: Path) -> Path:
    return folder / f"{_digest(request)}.json"


def _digest(request: Request) -> str:
    """Return the key of a request: its fields, versions, and the code of this package."""
    digest = hashlib.sha256(msgspec.json.encode(request))
    # Paths are relative to the working directory.
    if request.config is not None or any(words and ".py:" in words for words in (request.model, request.inputs)):
        digest.update(str(Path.cwd()).encode())
    digest.update(_installed())
    return digest.hexdigest()[:20]


@functools.cache
def _installed() -> bytes:
    """Return the versions that decide captures, and the code of this package."""
    found = [platform.python_version().encode()]
    for name in ("torch", *LIBRARIES):
        with suppress(importlib.metadata.PackageNotFoundError):
            found.append(f"{name} {importlib.metadata.version(name)}".encode())
    return b"".join([*found, *(each.read_bytes() for each in sorted(Path(__file__).parent.rglob("*.py")))])


def _variables_of(hardware: str) -> Mapping[str, str]:
    """Return the environment of a process whose PyTorch finds the card of a profile."""
    # The child imports this module, but no profile.
    from calibration.pretend.build import build_runtime, find_torch
    from calibration.pretend.card import card_of
    from calibration.pretend.environment import environment, with_unlimited_memory
    from vdnnsim.hardware.profile import find_profile, read_profile

    card = card_of(read_profile(find_profile(hardware, Path())))
    pretended = environment(card, build_runtime(find_torch()), inherited=os.environ)
    # A capture does not depend on whether it fits.
    return with_unlimited_memory({**os.environ, **pretended})
