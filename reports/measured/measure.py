"""Measures training steps on the first GPU: `python -m reports.measured.measure OUT [MODEL ...]`.

Each row of OUT/steps.csv is a network, a batch and an execution: automatic mixed precision in bfloat16, gradients set
to None, fused AdamW (SGD with momentum for ResNet-50), inputs on the GPU, `torch.compile` in its default mode around
the model. Nothing else may use the GPU or the host: short steps wait for the host. The first run compiles, which takes
minutes.
"""

import argparse
import csv
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Final

import torch
from torch.profiler import ProfilerActivity, profile

from reports.measured.models import SUBJECTS

EXECUTIONS: Final = ("eager", "compiled")
_SECONDS: Final = 1.5
_MARKED_STEPS: Final = 5
Mark = Callable[[], object]
Step = Callable[[Mark], object]


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """What was measured of a network; memory over two steps after the cache was emptied.

    Attributes:
        tokens: of a sequence; 0 for images.
        step_ms: of steps queued one behind the other, in the mean.
        shortest_ms, longest_ms: of steps after each of which the host waits for the GPU.
        driver_bytes: memory in use by the driver's count, of all processes.
        persistent_bytes: allocated between steps.
        gpu_busy_ms, kernels: kernels, copies and fills of one profiled step.
    """

    model: str
    batch: int
    tokens: int
    execution: str
    step_ms: float
    shortest_ms: float
    longest_ms: float
    steps: int
    allocated_peak: int
    reserved_peak: int
    driver_bytes: int
    persistent_bytes: int
    forward_ms: float
    backward_ms: float
    update_ms: float
    gpu_busy_ms: float
    kernels: int


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m reports.measured.measure", description="measure training steps")
    parser.add_argument("out", type=Path)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of {', '.join(SUBJECTS)}; all unless given")
    parser.add_argument("--execution", choices=EXECUTIONS, action="append")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    with (asked.out / "steps.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [each.name for each in fields(MeasuredStep)], lineterminator="\n")
        writer.writeheader()
        for model in asked.models or SUBJECTS:
            for batch in SUBJECTS[model].batches:
                for execution in asked.execution or EXECUTIONS:
                    row = measured(model, batch, execution)
                    writer.writerow(asdict(row))
                    file.flush()
                    print(row)  # noqa: T201  # of a long run, row by row


def measured(model: str, batch: int, execution: str) -> MeasuredStep:
    """Return a row, having freed what the network held."""
    torch.compiler.reset()
    try:
        return _measured(model, batch, execution)
    finally:
        gc.collect()
        torch.cuda.empty_cache()


def _measured(model: str, batch: int, execution: str) -> MeasuredStep:
    step = _step(model, batch, execution)
    list(_seconds(step, 4))
    (one,) = _seconds(step, 1)
    count = max(5, min(30, int(_SECONDS / one)))
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    persistent = torch.cuda.memory_allocated()
    list(_seconds(step, 2))
    allocated, reserved = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    free, total = torch.cuda.mem_get_info()
    single = list(_seconds(step, count))
    begin = time.perf_counter()
    for _ in range(count):
        step(_nothing)
    torch.cuda.synchronize()
    queued = (time.perf_counter() - begin) / count
    forward, backward, update = (statistics.median(part) for part in zip(*_parts(step), strict=True))
    busy, kernels = _busy(step)
    return MeasuredStep(
        model=model,
        batch=batch,
        tokens=SUBJECTS[model].tokens,
        execution=execution,
        step_ms=1e3 * queued,
        shortest_ms=1e3 * min(single),
        longest_ms=1e3 * max(single),
        steps=count,
        allocated_peak=allocated,
        reserved_peak=reserved,
        driver_bytes=total - free,
        persistent_bytes=persistent,
        forward_ms=forward,
        backward_ms=backward,
        update_ms=update,
        gpu_busy_ms=busy,
        kernels=kernels,
    )


def _nothing() -> None:
    """Mark nothing."""


def _step(model: str, batch: int, execution: str) -> Step:
    """Return a training step, which calls its argument before and after forward, after backward and at the end."""
    subject = SUBJECTS[model]
    torch.manual_seed(0)
    with torch.device("cuda"):
        network = subject.make()
    inputs = [each.cuda() for each in subject.inputs(batch, subject.tokens, subject.kinds)]
    run = torch.compile(network) if execution == "compiled" else network
    optimizer: torch.optim.Optimizer
    if subject.optimizer == "sgd":
        optimizer = torch.optim.SGD(network.parameters(), lr=1e-3, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-5, fused=True)

    def step(mark: Mark) -> None:
        mark()
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(*inputs)
        mark()
        loss.backward()
        mark()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        mark()

    return step


def _seconds(step: Step, count: int) -> Iterator[float]:
    """Yield the seconds of steps that the host waits for."""
    for _ in range(count):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        step(_nothing)
        torch.cuda.synchronize()
        yield time.perf_counter() - begin


def _parts(step: Step) -> Iterator[list[float]]:
    """Yield the milliseconds of forward, backward and update by the GPU's clock."""
    for _ in range(_MARKED_STEPS):
        events: list[torch.cuda.Event] = []

        def mark(events: list[torch.cuda.Event] = events) -> None:
            events.append(torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call]
            events[-1].record()

        step(mark)
        torch.cuda.synchronize()
        yield [first.elapsed_time(second) for first, second in pairwise(events)]


def _busy(step: Step) -> tuple[float, int]:
    """Return the milliseconds in which the GPU works in a step, and in how many kernels, copies and fills."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
        step(_nothing)
        torch.cuda.synchronize()
    on_gpu = [each for each in recorded.events() or () if each.device_type.name == "CUDA"]
    return sum(each.device_time for each in on_gpu) / 1e3, len(on_gpu)


if __name__ == "__main__":
    main()
