"""Recorder of one process on pretended GPUs: peaks, steps, holders of memory, out-of-memory errors, time of a step."""

import atexit
import json
import os
import pickle
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import torch
from torch.optim import Optimizer
from torch.optim import optimizer as optimizers

from .compiled import Compiler
from .driver import Driver
from .durations import OperatorTimes, Rates
from .host_reads import Reads, ValuesNotComputedError
from .modules import ModuleLabels
from .peak import RESERVATION, find_peak, labelled_place, phase_bytes
from .user_lines import user_line_here

_HISTORY_ENTRIES: Final = 400_000
_HOLDERS: Final = 1000
_WARM_STEPS, _TIMED_STEPS = 1, 2
_ENOUGH: Final = 1 << 45
"""Memory while steps are timed, more than any card has: peaks are not read then."""

_COMPILES: Final = "/torch/_inductor/compile_worker/"
"""Scripts of the processes in which torch.compile compiles kernels: they ask CUDA what a GPU is like, and no more."""


class StoppedSteadyError(SystemExit):
    """Raised out of an optimizer's step once all is recorded; ends the program with exit status 0."""


def record_from_first_use(session: Path) -> None:
    """Record this process from its first use of CUDA on, into the folder `session` with its `task.json`."""
    if _COMPILES in sys.argv[0]:
        return
    task = json.loads((session / "task.json").read_text())
    compiler = Compiler()
    torch.cuda._lazy_call(lambda: Recording(session, task, compiler))  # type: ignore[no-untyped-call]  # noqa: SLF001


class Recording:
    """The record of one process, written when the process or the session ends."""

    def __init__(self, session: Path, task: dict[str, Any], compiler: Compiler) -> None:
        self._session = session
        self._compiler = compiler
        self._whole: bool = task["whole"]
        self._steady_steps: int = task["steady_steps"]
        self._rates = Rates(**task["rates"])
        self._process = os.getpid()
        self._driver = Driver()
        compiler.labels = ModuleLabels()
        self._reads = Reads()
        self._lock = threading.Lock()
        self._steps: list[list[dict[str, int]]] = []
        self._optimizer: int | None = None
        self._steady_since = 0
        self._times: OperatorTimes | None = None
        self._timed_from: tuple[int, float] | None = None
        self._step_s: float | None = None
        self._memory: list[dict[str, Any]] | None = None
        self._refusals: list[dict[str, Any]] = []
        self._ended, self._error = "by itself", ""
        self._stopped = 0
        self._written = False
        self._most: dict[tuple[int, str], int] = {}
        torch.cuda.memory._record_memory_history(context="alloc", stacks="python", max_entries=_HISTORY_ENTRIES)  # noqa: SLF001
        torch._C._cuda_attach_out_of_memory_observer(self._out_of_memory)  # type: ignore[attr-defined]  # noqa: SLF001
        optimizers.register_optimizer_step_post_hook(self._step_ends)
        self._keep_peaks_from_resets()
        self._except = sys.excepthook
        sys.excepthook = self._raised
        atexit.register(self.write)
        threading.Thread(target=self._wait_for_end, daemon=True).start()

    def write(self) -> None:
        """Write the record, but not in a forked process."""
        with self._lock:
            if self._written or os.getpid() != self._process:
                return
            self._written = True
            if self._memory is None:
                self._memory = self._read_memory()
            content = {
                "process": self._process,
                "rank": int(os.environ.get("RANK", "0")),
                "torch": torch.__version__,
                "gpus": self._memory,
                "steps": self._steps,
                "steady_from_step": self._steady_since + 1 if self._is_steady() else None,
                "step_s": self._step_s,
                "operator_s": {} if self._times is None else self._times.seconds,
                "out_of_memory": self._refusals,
                "zeros_read": self._reads.zeros.most_common(),
                "refused": self._reads.refused,
                "ended": self._ended,
                "error": self._error,
            }
            beside = self._session / f"process-{self._process}.part"
            beside.write_text(json.dumps(content))
            beside.rename(beside.with_suffix(".json"))

    # ---- steps

    def _step_ends(self, optimizer: Optimizer, _arguments: object, _names: object) -> None:
        # Of several optimizers the first to step ends a step.
        if self._optimizer is None:
            self._optimizer = id(optimizer)
        if self._optimizer != id(optimizer) or os.getpid() != self._process:
            return
        if self._stopped:
            self._stop()
        if self._memory is not None:
            self._time_steps()
            return
        step = [self._state(gpu) for gpu in range(torch.cuda.device_count())]
        if self._steps and _reserved(step) != _reserved(self._steps[-1]):
            self._steady_since = len(self._steps)
        self._steps.append(step)
        if self._is_enough():
            self._memory = self._read_memory()
            self._time_steps()

    def _is_steady(self) -> bool:
        return len(self._steps) - self._steady_since > self._steady_steps

    def _is_enough(self) -> bool:
        if self._whole:
            return False
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            # All processes of a group must end after the same step, or others wait for one that has ended.
            return len(self._steps) > self._steady_steps + 1
        return self._is_steady()

    def _time_steps(self) -> None:
        if self._times is None:
            self._driver.set_memory_bytes(_ENOUGH)
            self._times = OperatorTimes(self._rates, self._driver)
            self._times.__enter__()
            self._timed_from = (-_WARM_STEPS, 0.0)
            return
        assert self._timed_from is not None, "set when the first of them began"
        number, since_s = self._timed_from
        if number + 1 == 0:
            torch.cuda.synchronize()
            self._times.seconds.clear()
            since_s = self._driver.clock_s()
        if number + 1 == _TIMED_STEPS:
            torch.cuda.synchronize()
            self._step_s = (self._driver.clock_s() - since_s) / _TIMED_STEPS
            self._times.__exit__(None, None, None)
            self._stop()
        self._timed_from = (number + 1, since_s)

    def _stop(self) -> None:
        self._ended = "steady"
        self._stopped += 1
        if self._stopped > 1:
            # The program caught the exception.
            self.write()
            sys.stdout.flush()
            os._exit(0)
        raise StoppedSteadyError(0)

    # ---- memory

    def _state(self, gpu: int) -> dict[str, int]:
        statistics = torch.cuda.memory_stats(gpu)
        for what in ("allocated_bytes", "reserved_bytes"):
            peak = statistics.get(f"{what}.all.peak", 0)
            self._most[gpu, what] = max(self._most.get((gpu, what), 0), peak)
        return {
            "allocated_bytes": self._most[gpu, "allocated_bytes"],
            "reserved_bytes": self._most[gpu, "reserved_bytes"],
            "driver_bytes": self._driver.peak_bytes(gpu),
        }

    def _keep_peaks_from_resets(self) -> None:
        """Read PyTorch's peaks before the program itself resets them."""
        reset = torch.cuda.memory.reset_peak_memory_stats

        def see_and_reset(device: Any = None) -> None:  # noqa: ANN401  # as PyTorch has it
            # The peak of a reservation is not the program's.
            if torch.cuda.memory._get_memory_metadata() != RESERVATION:  # noqa: SLF001  # its only form
                for gpu in range(torch.cuda.device_count()):
                    self._state(gpu)
            reset(device)

        torch.cuda.memory.reset_peak_memory_stats = see_and_reset
        torch.cuda.reset_peak_memory_stats = see_and_reset

    def _read_memory(self) -> list[dict[str, Any]]:
        gpus = []
        snapshot = torch.cuda.memory._snapshot()  # noqa: SLF001  # its only form
        torch.cuda.memory._record_memory_history(None)  # noqa: SLF001
        if self._compiler.labels is not None:
            self._compiler.labels.remove()
            self._compiler.labels = None
        for gpu in range(torch.cuda.device_count()):
            state = self._state(gpu)
            if not state["reserved_bytes"]:
                continue
            history = snapshot["device_traces"][gpu]
            peak = find_peak(history, torch.cuda.memory_allocated(gpu))
            found = None
            if peak is not None:
                found = {
                    "nbytes": peak.nbytes,
                    "place": asdict(peak.place),
                    "phase_bytes": phase_bytes(peak.holders),
                    "holders": [{**asdict(place), "nbytes": nbytes} for place, nbytes in peak.holders[:_HOLDERS]],
                    "unplaced_bytes": peak.unplaced_bytes,
                    "history_is_whole": len(history) < _HISTORY_ENTRIES,
                }
            gpus.append({"gpu": gpu, **state, "peak": found})
        with (self._session / f"snapshot-{self._process}.pickle").open("wb") as file:
            pickle.dump(snapshot, file)
        return gpus

    # ---- ends

    def _out_of_memory(self, gpu: int, asked: int, total: int, free: int) -> None:
        held = torch.cuda.memory_stats(gpu)
        self._refusals.append(
            {
                "gpu": gpu,
                "asked_bytes": asked,
                "memory_bytes": total,
                "free_bytes": free,
                "allocated_bytes": held["allocated_bytes.all.current"],
                "reserved_bytes": held["reserved_bytes.all.current"],
                "place": asdict(labelled_place(torch.cuda.memory._get_memory_metadata(), user_line_here())),  # noqa: SLF001
                "after_steps": len(self._steps),
            }
        )

    def _raised(self, kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        if issubclass(kind, torch.OutOfMemoryError):
            self._ended = "out of memory"
        elif issubclass(kind, ValuesNotComputedError):
            self._ended = "values"
        elif issubclass(kind, KeyboardInterrupt):
            self._ended = "interrupted"
        else:
            self._ended = "error"
        lines = str(error).splitlines()
        self._error = f"{kind.__name__}: {lines[0] if lines else ''}"
        self._except(kind, error, traceback)

    def _wait_for_end(self) -> None:
        """End this process when the session ends: a loop without steps has no other end."""
        with suppress(OSError), (self._session / "open").open("rb") as pipe:
            # Nothing is ever written: reading returns when the other end is closed.
            pipe.read(1)
            self._ended = "time"
            self.write()
            sys.stdout.flush()
            os._exit(0)


def _reserved(step: list[dict[str, int]]) -> list[int]:
    return [gpu["reserved_bytes"] for gpu in step]
