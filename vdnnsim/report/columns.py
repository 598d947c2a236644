"""The rows of `results.csv`: the one place that says which columns there are and what each of them means."""

from collections.abc import Callable
from dataclasses import dataclass

from vdnnsim.analysis.memory import runtime_bytes
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.dnn.samples import sample_of

Value = str | int | float | bool
"""What stands in one cell; numbers are SI."""

Row = tuple[Value, ...]
"""The cells of one policy and GPU, in the order of `COLUMNS`."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        meaning: its definition in one line, as `report.md` prints it.
        value: reads the cell of a result; a quantity that is a float is one even when it is whole.
    """

    name: str
    meaning: str
    value: Callable[[ScenarioResult, PolicyResult], Value]


def _tokens_per_s(run: ScenarioResult, row: PolicyResult) -> Value:
    tokens = sample_of(run.workload.graph).tokens
    return float(tokens * row.metrics.images_per_s) if tokens else ""


COLUMNS: tuple[Column, ...] = (
    Column("network", "the network that is trained", lambda run, _: run.workload.graph.name),
    Column(
        "batch_size",
        "images, or texts, videos or sequences, per iteration and GPU",
        lambda run, _: run.workload.batch_size,
    ),
    Column("gpu", "number of the GPU, from 0", lambda _, row: row.gpu),
    Column("policy", "the policy with its options", lambda _, row: row.policy),
    Column(
        "algorithms",
        "convolution algorithms: m memory-optimal, p performance-optimal, or what a dynamic policy settled on",
        lambda _, row: row.algorithms,
    ),
    Column(
        "fits",
        "whether the policy trains the network within the memory of this machine; the numbers of a row that does not "
        "fit are of a replay on a GPU without a capacity",
        lambda _, row: row.fits,
    ),
    Column(
        "iteration_s",
        "seconds from the first issue until host and streams are done",
        lambda _, row: float(row.metrics.iteration_s),
    ),
    Column("images_per_s", "batch_size / iteration_s", lambda _, row: float(row.metrics.images_per_s)),
    Column(
        "max_memory_bytes",
        "most GPU memory in use at once, whole network",
        lambda _, row: row.metrics.max_memory_bytes,
    ),
    Column(
        "mean_memory_bytes",
        "GPU memory in use averaged over time, whole network",
        lambda _, row: float(row.metrics.mean_memory_bytes),
    ),
    Column(
        "feature_max_memory_bytes",
        "as max_memory_bytes, of the buffers of feature-extraction layers alone (the vDNN paper's scope)",
        lambda _, row: row.metrics.feature_max_memory_bytes,
    ),
    Column(
        "feature_step_mean_memory_bytes",
        "of the same buffers, the mean over layer steps: each feature-extraction layer counts once forward and once "
        "backward, whatever its duration",
        lambda _, row: float(row.metrics.feature_step_mean_memory_bytes),
    ),
    Column(
        "feature_iteration_s",
        "seconds spent on feature extraction: its kernels and the stalls before them or caused by copies",
        lambda _, row: float(row.metrics.feature_iteration_s),
    ),
    Column("offloaded_bytes", "bytes copied to the host in one iteration", lambda _, row: row.metrics.offloaded_bytes),
    Column(
        "prefetched_bytes",
        "bytes copied back in one iteration, on demand or ahead",
        lambda _, row: row.metrics.prefetched_bytes,
    ),
    Column(
        "host_memory_bytes",
        "most pinned host memory in use at once",
        lambda _, row: row.metrics.host_memory_bytes,
    ),
    Column(
        "stall_s",
        "seconds in which the compute stream stood still before or between kernels",
        lambda _, row: float(row.metrics.stall_s),
    ),
    Column(
        "performance_ratio",
        "iteration_s of the oracular baseline, base(p) without a capacity, over iteration_s",
        lambda _, row: float(row.performance_ratio),
    ),
    Column(
        "feature_performance_ratio",
        "the same of feature_iteration_s",
        lambda _, row: float(row.feature_performance_ratio),
    ),
    Column(
        "pool_bytes",
        "GPU memory that the memory model needed, gaps included",
        lambda _, row: row.metrics.pool_bytes,
    ),
    Column(
        "runtime_bytes",
        "GPU memory of the process as nvidia-smi shows it: pool_bytes, and the context and further handles where the "
        "profile states them",
        lambda run, row: runtime_bytes(row.trace, run.server.gpu),
    ),
    Column(
        "tokens_per_s",
        "images_per_s times the tokens of each text; empty for networks that read no texts",
        _tokens_per_s,
    ),
    Column(
        "refusal",
        "why a policy does not fit: who asked for how much, what was free, what held the rest",
        lambda _, row: "" if row.refusal is None else row.refusal.explain(),
    ),
)


def column_names() -> tuple[str, ...]:
    """The header of `results.csv`."""
    return tuple(column.name for column in COLUMNS)


def result_rows(result: ScenarioResult) -> tuple[Row, ...]:
    """Return one row per policy and GPU, in the order of the scenario."""
    return tuple(tuple(column.value(result, each) for column in COLUMNS) for each in result.results)
