"""Session of a user's command on pretended GPUs: its start, its end after a time limit, and its record."""

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from calibration.pretend.card import OperatorRates
from vdnnsim.errors import InputError

_GRACE_S = 30.0
"""For a command to end once its session is closed."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a session records.

    Attributes:
        steady_steps: the program is ended once reserved memory has not grown for so many optimizer steps.
        whole: whether it runs to its own end instead; no step is timed then.
    """

    steady_steps: int
    whole: bool
    rates: OperatorRates


class Place(msgspec.Struct, frozen=True):
    """Where memory was requested (`calibration.pretend.inside.peak`)."""

    phase: str
    module: str
    line: str


class Holder(Place, frozen=True):
    """A place, and the bytes that it held at the peak."""

    nbytes: int


class Peak(msgspec.Struct, frozen=True):
    """The peak of allocated memory (`calibration.pretend.inside.peak`)."""

    nbytes: int
    place: Place
    phase_bytes: dict[str, int]
    holders: tuple[Holder, ...]
    unplaced_bytes: int
    history_is_whole: bool


class Gpu(msgspec.Struct, frozen=True):
    """Peaks of one process on one GPU: allocated, reserved by PyTorch, and by the driver."""

    gpu: int
    allocated_bytes: int
    reserved_bytes: int
    driver_bytes: int
    peak: Peak | None


class Most(msgspec.Struct, frozen=True):
    """Peaks on one GPU up to the end of a step."""

    allocated_bytes: int
    reserved_bytes: int
    driver_bytes: int


class OutOfMemory(msgspec.Struct, frozen=True):
    """One out-of-memory error of PyTorch, whether or not the program went on."""

    gpu: int
    asked_bytes: int
    memory_bytes: int
    free_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    place: Place
    after_steps: int


class Process(msgspec.Struct, frozen=True):
    """The record of one process that used CUDA.

    Attributes:
        steps: after each step of the optimizer, the peaks so far on each GPU.
        steady_from_step: the number of the step from which reserved memory grew no more; None if it may grow further.
        step_s: predicted time of a step; None where none was timed.
        operator_s: of the timed steps, seconds on GPUs by operator.
        zeros_read: how often each line read a value from a GPU, the most frequent first.
        refused: operations whose result sizes depend on values.
        ended: `by itself`, `steady`, `time`, `out of memory`, `values`, `interrupted` or `error`.
    """

    process: int
    rank: int
    torch: str
    gpus: tuple[Gpu, ...]
    steps: tuple[tuple[Most, ...], ...]
    steady_from_step: int | None
    step_s: float | None
    operator_s: dict[str, float]
    out_of_memory: tuple[OutOfMemory, ...]
    zeros_read: tuple[tuple[str, int], ...]
    refused: tuple[str, ...]
    ended: str
    error: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a command.

    Attributes:
        returncode: its exit status, negative where a signal ended it.
        processes: those that used CUDA, by rank.
        snapshots: PyTorch's memory snapshot of each of them, pickled.
    """

    returncode: int
    processes: tuple[Process, ...]
    snapshots: tuple[bytes, ...]

    @property
    def was_ended(self) -> bool:
        """Whether the session ended all processes, so that the exit status is not their own."""
        return bool(self.processes) and all(each.ended in {"steady", "time"} for each in self.processes)

    @property
    def out_of_memory(self) -> tuple[Process, OutOfMemory] | None:
        """The out-of-memory error that ended the command, and its process; None where none did."""
        for each in self.processes:
            if each.ended == "out of memory" and each.out_of_memory:
                return each, each.out_of_memory[-1]
        return None


def run_command(
    command: Sequence[str],
    variables: Mapping[str, str],
    task: Task,
    limit_s: float,
    folder: Path,
    output: IO[bytes] | None = None,
) -> Outcome:
    """Run a command, and return the records of its processes.

    Ctrl-C ends only the command; the records so far are returned.

    The pretended GPU is among the `variables`. The command is ended after `limit_s` seconds, its processes write files
    to an empty `folder`, and it shares the output of this process unless there is an `output`.

    Raises:
        InputError: the program cannot be started.
    """
    (folder / "task.json").write_text(json.dumps(_task(task)))
    os.mkfifo(folder / "open")
    environment = {**os.environ, **variables, "VDNNSIM_PRETEND_SESSION": str(folder)}
    # Read and write: opening for writing alone would wait for a reader.
    held_open = os.open(folder / "open", os.O_RDWR | os.O_CLOEXEC)
    closed = threading.Event()

    def end() -> None:
        closed.set()
        os.close(held_open)

    with _interrupts_left_to_command():
        try:
            child = subprocess.Popen(  # noqa: S603  # running the user's command is what this is for
                command,
                env=environment,
                stdin=None if output is None else subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        except OSError as failure:
            end()
            raise InputError(f"{command[0]}: cannot be run: {(failure.strerror or 'unknown error').lower()}") from None
        try:
            returncode = child.wait(limit_s)
        except subprocess.TimeoutExpired:
            end()
            try:
                returncode = child.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                child.kill()
                returncode = child.wait()
        finally:
            if not closed.is_set():
                end()
    return Outcome(returncode, *_records(folder))


def _task(task: Task) -> dict[str, Any]:
    rates = {name: value for name, value in asdict(task.rates).items() if name != "origin"}
    return {"steady_steps": task.steady_steps, "whole": task.whole, "rates": rates}


def _records(folder: Path) -> tuple[tuple[Process, ...], tuple[bytes, ...]]:
    read = [msgspec.json.decode(path.read_bytes(), type=Process) for path in folder.glob("process-*.json")]
    read.sort(key=lambda each: (each.rank, each.process))
    return tuple(read), tuple((folder / f"snapshot-{each.process}.pickle").read_bytes() for each in read)


@contextmanager
def _interrupts_left_to_command() -> Iterator[None]:
    """Ignore Ctrl-C, which the terminal also sends to the command."""
    # The command inherits SIG_IGN, but not a handler.
    before = signal.signal(signal.SIGINT, lambda _number, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
