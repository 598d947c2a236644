"""What nvidia-smi tells of a GPU. It is only asked, never told to change anything, and may be absent."""

import shutil
import subprocess
from collections.abc import Sequence

_PATIENCE_S = 20.0


def query_gpu(fields: Sequence[str], gpu: str | None = None) -> dict[str, str]:
    """Return what is known of some fields (`nvidia-smi --help-query-gpu`) of a GPU, by default the first."""
    lines = _ask(f"--query-gpu={','.join(fields)}", gpu)
    texts = [text.strip() for text in lines[0].split(",")] if lines else []
    if len(texts) != len(fields):
        return {}
    # What a card does not know is [N/A] or [Not Supported].
    return {field: text for field, text in zip(fields, texts, strict=True) if text and not text.startswith("[")}


def query_processes(gpu: str) -> dict[int, str]:
    """Return the memory of each process that computes on a GPU, as text with its unit, by the process's number.

    Inside a container the numbers may be those of the machine outside, and there may be none at all.
    """
    pairs = [line.split(",") for line in _ask("--query-compute-apps=pid,used_gpu_memory", gpu)]
    return {int(pair[0]): pair[1].strip() for pair in pairs if len(pair) == 2 and pair[0].strip().isdecimal()}


def _ask(query: str, gpu: str | None) -> list[str]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, query, "--format=csv,noheader", *([] if gpu is None else [f"--id={gpu}"])]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=True)  # noqa: S603  # no part of it is a user's
    except (OSError, subprocess.SubprocessError):
        return []
    return [line for line in answer.stdout.splitlines() if line.strip()]
