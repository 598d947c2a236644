"""Environment variables of a process on pretended GPUs, and where the Python of a command finds its packages."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Final

from calibration.pretend.build import Runtime
from calibration.pretend.card import Card
from vdnnsim.errors import InputError

MOST_GPUS: Final = 16
"""Of one machine; `runtime/runtime.h` has room for as many."""
_ENOUGH_BYTES: Final = 1 << 42
"""Unlimited memory: more than any host of GPUs has."""
_STARTUP: Final = Path(__file__).parents[1] / "startup"
"""Its `sitecustomize` runs first, so that the virtual clock is set before any code reads a clock."""
_PATIENCE_S: Final = 60.0
_ASK: Final = "import json, sys; print(json.dumps(sys.path))"


class Clock(Enum):
    """Time of the GPUs: the host's, or a virtual one of waits and fixed costs of calls."""

    VIRTUAL = "virtual"
    REAL = "real"


class Copies(Enum):
    """When the bytes of a copy move: as it is issued, or at its end by the clock."""

    NOW = "now"
    DELAYED = "delayed"


def environment(
    card: Card,
    runtime: Runtime,
    *,
    inherited: Mapping[str, str],
    gpus: int = 1,
    clock: Clock = Clock.VIRTUAL,
    copies: Copies = Copies.NOW,
    log: Path | None = None,
) -> dict[str, str]:
    """Return the variables of a process on pretended GPUs, beside inherited ones.

    Args:
        card: of each GPU.
        runtime: compiled for the PyTorch of that process.
        inherited: variables of the process, whose preloaded libraries and PYTHONPATH are kept.
        gpus: number of GPUs.
        clock: of the GPUs.
        copies: when bytes move.
        log: a file for a line on each call that the runtime lacks.
    """
    numbers = {
        "GPUS": gpus,
        "MEMORY_BYTES": card.memory_bytes,
        "CONTEXT_BYTES": card.context_bytes,
        "SMS": card.integer("multiProcessorCount"),
        "THREADS_PER_SM": card.integer("maxThreadsPerSM"),
        "BLOCKS_PER_SM": card.integer("maxCtasPerSM"),
        "REGISTERS_PER_SM": card.integer("maxRegistersPerSM"),
        "SHARED_MEMORY_PER_SM_BYTES": card.shared_memory_bytes,
        "SHARED_MEMORY_PER_BLOCK_BYTES": card.integer("maxSharedMemoryPerBlockOptin"),
        "L2_BYTES": card.integer("l2CacheSize"),
        "CLOCK_HZ": 1000 * card.integer("smClockRateKHz"),
        "MEMORY_CLOCK_HZ": 1000 * card.integer("memClockRateKHz"),
        "H2D_BYTES_PER_S": card.link.h2d_bytes_per_s,
        "D2H_BYTES_PER_S": card.link.d2h_bytes_per_s,
        "COPY_LATENCY_S": card.link.latency_s,
        "DRAM_BYTES_PER_S": card.dram_bytes_per_s,
        "FLOP_PER_S": card.flop_per_s,
        "LAUNCH_S": card.launch_s,
        "ISSUE_S": card.host.issue_s,
        "PIN_BYTES_PER_S": card.host.pin_bytes_per_s,
        "PIN_LATENCY_S": card.host.pin_latency_s,
    }
    texts = {
        "NAME": card.name,
        "COMPUTE_CAPABILITY": card.compute_capability,
        "CLOCK": clock.value,
        "COPIES": copies.value,
        "CUDNN": json.dumps(dict(card.properties)),
    }
    if log is not None:
        texts["LOG"] = str(log)
    settings = {**{name: f"{number:.15g}" for name, number in numbers.items()}, **texts}
    return {
        "LD_PRELOAD": ":".join([*map(str, runtime.libraries), *_inherited("LD_PRELOAD", inherited)]),
        # Triton links its launcher to the driver's library in this folder.
        "TRITON_LIBCUDA_PATH": str(runtime.libraries[0].parent),
        # Kernels are tuned by times of a pretended GPU, which a real one must not find, and in each run alike.
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        "PYTHONPATH": os.pathsep.join([str(_STARTUP), *_inherited("PYTHONPATH", inherited)]),
        **{f"VDNNSIM_PRETEND_{name}": text for name, text in settings.items()},
    }


def with_unlimited_memory(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a process whose pretended GPUs have unlimited memory."""
    return {**variables, "VDNNSIM_PRETEND_MEMORY_BYTES": str(_ENOUGH_BYTES)}


def _inherited(name: str, variables: Mapping[str, str]) -> list[str]:
    return [variables[name]] if variables.get(name) else []


def package_folders(program: str) -> list[str]:
    """Return the `sys.path` of the Python of a program.

    That is the program itself, or the Python in the first line of a script, as of `torchrun` and `accelerate`; else
    this one.

    Raises:
        InputError: there is no such program, or its Python fails.
    """
    found = shutil.which(program)
    if found is None:
        raise InputError(f"{program}: there is no such program; a command begins with one: -- python train.py")
    python = _python_behind(Path(found))
    if python is None:
        return sys.path
    try:
        # Not with -I, which would ignore PYTHONPATH.
        answer = subprocess.run([python, "-c", _ASK], capture_output=True, text=True, check=True, timeout=_PATIENCE_S)  # noqa: S603
        return [str(each) for each in json.loads(answer.stdout.splitlines()[-1])]
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        raise InputError(f"{program}: its Python, {python}, does not say where it finds packages") from None


def _python_behind(program: Path) -> str | None:
    if program.name.startswith("python"):
        return str(program)
    with program.open("rb") as file:
        first = file.readline(512).decode(errors="replace")
    words = first[2:].split() if first.startswith("#!") else []
    if len(words) > 1 and Path(words[0]).name == "env":
        words = words[1:]
    if words and Path(words[0]).name.startswith("python"):
        return shutil.which(words[0])
    return None
