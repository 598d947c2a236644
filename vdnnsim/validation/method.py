"""How a device is compared with the simulator, and what may come out: one method for a CPU, one for a GPU."""

from dataclasses import dataclass
from typing import Final

from vdnnsim.validation.pacing import Pacing
from vdnnsim.validation.tasks import CPU_TASKS, GPU_TASKS, Task


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far measured and simulated may lie apart, as shares of the measured value.

    Attributes:
        calibrated, never_calibrated: of the iteration time, in the mean over the rows of a class, or in every row.
        every_row: which of the two.
        memory: of the peak of requested bytes, in every row.
        clock_s: by how much two moments of the device's clock may be wrong against each other.
    """

    calibrated: float
    never_calibrated: float
    every_row: bool
    memory: float
    clock_s: float


@dataclass(frozen=True, slots=True)
class Method:
    """How rows are measured.

    Attributes:
        pacing: of a device whose durations are given; None where it runs as fast as it goes.
        free_runs: how often a plan runs as fast as the device goes, after a warm-up. The median counts; beside runs
            with given durations it is reported and never judged.
        caching_allocator: whether memory comes from PyTorch's caching allocator.
    """

    tasks: tuple[Task, ...]
    pacing: Pacing | None
    free_runs: int
    caching_allocator: bool
    tolerance: Tolerance


PACED_CPU: Final = Method(
    tasks=CPU_TASKS,
    pacing=Pacing(
        kernel_factor=3.0,
        least_kernel_s=8e-3,
        copy_factor=30.0,
        copy_latency_s=10e-3,
        stretches=(1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 8.0, 8.0),
    ),
    free_runs=1,
    caching_allocator=False,
    tolerance=Tolerance(calibrated=0.05, never_calibrated=0.05, every_row=True, memory=0.0, clock_s=0.0),
)
"""Given durations: they are met in every row, and memory to the byte, or something is wrong."""

FREE_GPU: Final = Method(
    tasks=GPU_TASKS,
    pacing=None,
    free_runs=3,
    caching_allocator=True,
    # CUDA events resolve half a microsecond, and each moment is the difference of two.
    tolerance=Tolerance(calibrated=0.05, never_calibrated=0.10, every_row=False, memory=0.005, clock_s=2e-6),
)
"""As fast as the GPU goes, against times that were calibrated or predicted."""
