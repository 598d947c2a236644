"""Captures in a child process, with a cache.

A user's code and PyTorch's C++ may end their process, which becomes an error message here. PyTorch is not imported in
this process.
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryFile
from typing import Final

import msgspec

from calibration.capture.request import LIBRARIES, Request
from calibration.pretend.build import build_runtime, find_torch
from calibration.pretend.card import card_of
from calibration.pretend.environment import environment, with_unlimited_memory
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.errors import CaptureError
from vdnnsim.files.messages import one_line
from vdnnsim.files.user_cache import keep, user_cache
from vdnnsim.hardware.profile import find_profile, read_profile

_ROOT: Final = Path(__file__).parents[2]
# Imports our packages from where they are here, without leaving their folder in sys.path; -P leaves out the working
# directory, as for a script.
_START: Final = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); import calibration, vdnnsim; del sys.path[0]; "
    "from calibration.capture.child import main; main()"
)
_LONGEST: Final = 300
"""Characters of a process's last line in a message."""


class Asked(msgspec.Struct, frozen=True):
    """What the child is asked for: `sources.captured_together`."""

    requests: tuple[Request, ...]
    room_bytes: int


class Answer(msgspec.Struct, frozen=True):
    """The answer of the child, or of the cache.

    Attributes:
        steps: by request, of the cache one; none where one could not be captured.
        files: the user's files that were imported, by path, with the SHA-256 of each.
    """

    steps: tuple[CapturedStep, ...] = ()
    error: str = ""
    files: dict[str, str] = {}


def captured(request: Request, cache: Path | None = None) -> tuple[CapturedStep, Path | None]:
    """Return the captured step of a request; see `captured_together`."""
    (found,) = captured_together((request,), cache)
    return found


def captured_together(
    requests: Sequence[Request], cache: Path | None = None, *, room_bytes: int = 0
) -> tuple[tuple[CapturedStep, Path | None], ...]:
    """Return captured steps, each from the cache if request, files and versions are the same.

    Args:
        requests: what to capture, of one model; one process captures those that do not change the model itself.
        cache: a folder; by default `vdnnsim/capture` in the user's cache.
        room_bytes: where the storages of the first fit into so much, the others are left out.

    Returns:
        each step, and the file of the cache that it was read from; none from one on that cannot be captured.

    Raises:
        CaptureError: the first cannot be captured, or the child process failed.
        ProfileError, DeviceError: the profile's card cannot be pretended, or none can here.
    """
    for request in requests:
        request.check()
    files = {request: (cache or user_cache("capture")) / f"{_digest(request)}.json" for request in requests}
    found: dict[Request, tuple[CapturedStep, Path | None]] = {
        request: (step, file) for request, file in files.items() if (step := _kept(file)) is not None
    }
    if (first := found.get(requests[0])) is not None and first[0].peak_live_bytes <= room_bytes:
        return (first,)
    if missing := tuple(request for request in files if request not in found):
        if importlib.util.find_spec("torch") is None:
            raise CaptureError("capture needs PyTorch, which is not installed: pip install 'vdnnsim[calibrate]'")
        for model in dict.fromkeys(map(_model_of, missing)):
            alike = tuple(request for request in missing if _model_of(request) == model)
            answer = _answer_of_child(Asked(alike, room_bytes))
            if not answer.steps and requests[0] in alike:
                raise CaptureError(answer.error)
            for request, step in zip(alike, answer.steps, strict=False):
                found[request] = step, None
                keep(files[request], msgspec.json.encode(Answer((step,), files=answer.files)))
    return tuple(found[request] for request in takewhile(found.__contains__, requests))


def _model_of(request: Request) -> tuple[object, ...]:
    """Return what changes the model itself: its checkpoints, or its place in a pipeline, whose buffers have sizes."""
    is_staged = request.layout is not None and request.layout.pipeline > 1
    return request.checkpointing, request.position, request.batch_size if is_staged else 0


def file_sha256(path: str) -> str:
    """Return the SHA-256 of a file; empty if it cannot be read."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


def _answer_of_child(asked: Asked) -> Answer:
    request = asked.requests[0]
    # Files without names, which do not stay if this process is killed.
    with TemporaryFile() as answered, TemporaryFile() as log:
        done = subprocess.run(  # noqa: S603 - this interpreter, which runs the user's code
            [sys.executable, "-P", "-c", _START, str(_ROOT), str(answered.fileno())],
            input=msgspec.json.encode(asked),
            env=_variables_of(request.pretended) if request.pretended else None,
            stdout=sys.stderr.fileno() if _has_descriptor() else subprocess.DEVNULL,
            stderr=log,
            pass_fds=(answered.fileno(),),
            check=False,
        )
        # The child has moved the position that it shares.
        for each in (answered, log):
            each.seek(0)
        said = log.read().decode("utf-8", "replace")
        try:
            answer = msgspec.json.decode(answered.read(), type=Answer)
        except msgspec.DecodeError:
            raise CaptureError(f"{request.model}: {_end(done.returncode)}{_last_words(said)}") from None
    # After a failure its one line is enough.
    if said and answer.steps and sys.stderr is not None:
        sys.stderr.write(said)
    return answer


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


def _kept(path: Path) -> CapturedStep | None:
    """Return a step of the cache, unless an imported file has changed."""
    try:
        answer = msgspec.json.decode(path.read_bytes(), type=Answer)
    except (OSError, msgspec.DecodeError):
        return None
    if any(file_sha256(file) != digest for file, digest in answer.files.items()):
        return None
    # The time of use, for `keep`.
    with suppress(OSError):
        os.utime(path)
    return answer.steps[0]


def _digest(request: Request) -> str:
    """Return the key of a request: its fields, versions, and the code of this package."""
    digest = hashlib.sha256(msgspec.json.encode(request))
    # Paths are relative to the working directory.
    if request.config is not None or any(words and ".py:" in words for words in (request.model, request.inputs)):
        digest.update(str(Path.cwd()).encode())
    digest.update(platform.python_version().encode())
    for name in ("torch", *LIBRARIES):
        with suppress(importlib.metadata.PackageNotFoundError):
            digest.update(f"{name} {importlib.metadata.version(name)}".encode())
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:20]


def _variables_of(hardware: str) -> Mapping[str, str]:
    """Return the environment of a process whose PyTorch finds the card of a profile."""
    card = card_of(read_profile(find_profile(hardware, Path())))
    pretended = environment(card, build_runtime(find_torch()), inherited=os.environ)
    # A capture does not depend on whether it fits.
    return with_unlimited_memory({**os.environ, **pretended})
