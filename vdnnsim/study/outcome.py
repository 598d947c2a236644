"""What is kept of a point: the numbers of a row of `results.csv`, of several GPUs those of the one done last."""

from typing import Final, TypeAlias

from vdnnsim.analysis.metrics import RunMetrics

Cell: TypeAlias = int | float | str | bool | None

OUTCOME: Final = (
    ("algorithms", "TEXT"),
    ("fits", "INTEGER"),
    ("iteration_s", "REAL"),
    ("images_per_s", "REAL"),
    ("max_memory_bytes", "INTEGER"),
    ("mean_memory_bytes", "REAL"),
    ("feature_max_memory_bytes", "INTEGER"),
    ("feature_step_mean_memory_bytes", "REAL"),
    ("feature_iteration_s", "REAL"),
    ("offloaded_bytes", "INTEGER"),
    ("prefetched_bytes", "INTEGER"),
    ("host_memory_bytes", "INTEGER"),
    ("stall_s", "REAL"),
    ("performance_ratio", "REAL"),
    ("feature_performance_ratio", "REAL"),
    ("pool_bytes", "INTEGER"),
    ("refusal", "TEXT"),
)
"""Columns and how SQLite stores them. `images_per_s` is of all GPUs together, whatever else is of one."""

Outcome: TypeAlias = tuple[Cell, ...]
"""An error, empty where there is none, and then the cells of `OUTCOME`, all None where there is one."""


def failed(error: str) -> Outcome:
    """Return the outcome of a point that could not be computed."""
    return (error, *(None for _ in OUTCOME))


def computed(metrics: RunMetrics, oracle: RunMetrics, algorithms: str, refusal: str, gpus: int) -> Outcome:
    """Return the outcome of a point; a refusal that is empty says that it fits."""
    return (
        "",
        algorithms,
        not refusal,
        float(metrics.iteration_s),
        float(gpus * metrics.images_per_s),
        metrics.max_memory_bytes,
        float(metrics.mean_memory_bytes),
        metrics.feature_max_memory_bytes,
        float(metrics.feature_step_mean_memory_bytes),
        float(metrics.feature_iteration_s),
        metrics.offloaded_bytes,
        metrics.prefetched_bytes,
        metrics.host_memory_bytes,
        float(metrics.stall_s),
        float(oracle.iteration_s / metrics.iteration_s),
        float(oracle.feature_iteration_s / metrics.feature_iteration_s),
        metrics.pool_bytes,
        refusal,
    )
