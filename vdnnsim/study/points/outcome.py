"""What is kept of a point: the numbers of a row of `results.csv`, of several GPUs those of the one done last."""

from typing import Final, TypeAlias

from vdnnsim.analysis.columns import Measured, Value, cells
from vdnnsim.analysis.metrics import RunMetrics, performance_ratios

OUTCOME: Final = (
    "algorithms",
    "fits",
    "iteration_s",
    "images_per_s",
    "max_memory_bytes",
    "mean_memory_bytes",
    "feature_max_memory_bytes",
    "feature_step_mean_memory_bytes",
    "feature_iteration_s",
    "offloaded_bytes",
    "prefetched_bytes",
    "host_memory_bytes",
    "stall_s",
    "performance_ratio",
    "feature_performance_ratio",
    "pool_bytes",
    "server_images_per_s",
    "refusal",
)
"""Columns of what came of a point."""

Outcome: TypeAlias = tuple[Value | None, ...]
"""An error, empty where there is none, and then the cells of `OUTCOME`, all None where there is one."""


def failed(error: str) -> Outcome:
    """Return the outcome of a point that could not be computed."""
    return (error, *(None for _ in OUTCOME))


def computed(metrics: RunMetrics, oracle: RunMetrics, algorithms: str, refusal: str, gpus: int) -> Outcome:
    """Return the outcome of a point, of several GPUs that of the one done last; it fits where the refusal is empty."""
    ratios = performance_ratios(oracle, metrics)
    measured = Measured(algorithms, refusal, metrics, *ratios, server_images_per_s=gpus * metrics.images_per_s)
    return ("", *cells(OUTCOME, {}, measured))
