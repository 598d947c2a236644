"""Columns of all tables of results: names, definitions, units and values.

CSV, JSON, pictures and printed tables take columns from here by name, and state the cells that name their rows. A
quantity ends in its SI unit, `_s`, `_bytes`, `_per_s`, or in `_ratio`. Columns of all GPUs of a server begin with
`server_`; others are of one GPU, which is the slowest where a row names none.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from typing import Final

from vdnnsim.analysis.memory import process_bytes
from vdnnsim.analysis.metrics import RunMetrics
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.dnn.samples import sample_of

Value = str | int | float | bool
"""A cell; numbers are in SI units, and whole floats stay floats."""
Row = tuple[Value, ...]
"""Cells in the order of the columns."""


class Scope(Enum):
    """The subject of a column."""

    ROW = "the row"
    GPU = "one GPU"
    SERVER = "all GPUs together"


@dataclass(frozen=True, slots=True)
class Measured:
    """The inputs of computed columns: one policy on one GPU.

    Attributes:
        refusal: why it does not fit; empty where it does.
        server_samples_per_s: of all GPUs, until the last is done.
        process_bytes: process memory.
        tokens: per sequence; 0 for other samples.
    """

    algorithms: str
    refusal: str
    metrics: RunMetrics
    performance_ratio: float
    feature_performance_ratio: float
    server_samples_per_s: float
    process_bytes: int = 0
    tokens: int = 0

    @classmethod
    def of(cls, result: ScenarioResult, row: PolicyResult) -> "Measured":
        rate = row.metrics.samples_per_s
        if result.gpus > 1:
            assert row.server_trace is not None
            rate = result.batches * (result.workload.batch_size / row.server_trace.iteration_s)
        return cls(
            row.algorithms,
            "" if row.refusal is None else row.refusal.explain(),
            row.metrics,
            row.performance_ratio,
            row.feature_performance_ratio,
            rate,
            process_bytes(row.trace, result.server.gpu),
            sample_of(result.workload.graph).tokens,
        )


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        meaning: definition in one line, as reports print it.
        value: computes a cell; None where a table states it.
        label: axis label without the unit; the name in words if it is empty.
        title: title in printed tables, without the unit.
        short: title on a terminal.
    """

    name: str
    scope: Scope
    meaning: str
    value: Callable[[Measured], Value] | None = None
    label: str = ""
    title: str = ""
    short: str = ""

    def of(self, measured: Measured) -> Value:
        assert self.value is not None, f"{self.name} names rows"
        return self.value(measured)

    def number(self, measured: Measured) -> float:
        value = self.of(measured)
        assert isinstance(value, int | float), f"{self.name} is no quantity"
        return value

    def documented(self, gpus: int) -> str:
        """Return the definition; with several GPUs also the scope."""
        return self.meaning if gpus == 1 or self.scope is Scope.ROW else f"{self.meaning}; of {self.scope.value}"


_ROW: Final = {
    "network": "the network that is trained",
    "batch_size": "samples (images, sequences or videos) per iteration and GPU",
    "hardware": "the profile of the machine",
    "gpus": "how many GPUs train together",
    "gpu": "number of the GPU, from 0",
    "policy": "the policy with its options",
    "when": "before or after the change",
    "outcome": "fits, just fits (by its simulated peak alone), does not fit or no plan",
    "time_rank": "of those that fit, 1 for the shortest iteration",
    "memory_rank": "of those that fit, 1 for the least process memory",
    "on_front": "whether no other policy is better in time or memory and no worse in the other",
    "reason": "why a policy does not fit or has no plan, or with which one it shares its plan",
    "layer": "the layer whose request does not fit with one more sample",
    "phase": "the phase of that layer",
    "sure_batch_size": "the largest batch that leaves as much of the GPU memory as simulated peaks may be too low by; "
    "empty where it is not known",
    "part_size": "samples in the largest part that fits, if a batch of any size is cut into parts",
    "error": "why a point could not be computed",
}
_ROW_LABELS: Final = {"batch_size": "batch size", "gpus": "GPUs"}
_METRICS: Final = {
    "iteration_s": "seconds from the first issue until host and streams are done",
    "samples_per_s": "batch_size / iteration_s, samples of any kind a second",
    "allocated_bytes": "allocated: peak of the GPU memory in live buffers, whole network",
    "mean_allocated_bytes": "allocated GPU memory averaged over time, whole network",
    "feature_allocated_bytes": "as allocated_bytes, of the buffers of feature-extraction layers alone (the vDNN "
    "paper's scope)",
    "feature_step_mean_allocated_bytes": "of the same buffers, the mean over layer steps: each layer counts once in "
    "each direction",
    "feature_iteration_s": "seconds spent on feature extraction: its kernels and the stalls before them or caused by "
    "copies",
    "offloaded_bytes": "bytes copied to the host in one iteration",
    "prefetched_bytes": "bytes copied back in one iteration, on demand or ahead",
    "host_memory_bytes": "peak of pinned host memory",
    "stall_s": "seconds in which the compute stream waited before or between kernels",
    "reserved_bytes": "reserved: GPU memory that the memory model takes from the device, gaps included",
}
"""Columns of `RunMetrics` and their meanings."""
_TITLES: Final[Mapping[str, tuple[str, ...]]] = {
    "iteration_s": ("time of an iteration", "time per iteration", "time"),
    "samples_per_s": ("samples/s",),
    "allocated_bytes": ("peak of allocated GPU memory", "allocated", "allocated"),
    "mean_allocated_bytes": ("mean of allocated GPU memory", "mean allocated", "mean"),
    "reserved_bytes": ("reserved GPU memory", "reserved", "reserved"),
    "offloaded_bytes": ("offloaded", "offloaded", "offload"),
    "host_memory_bytes": ("peak of pinned host memory",),
    "stall_s": ("stalls", "stalled", "stalled"),
}
"""Label, title and short title of columns of `RunMetrics`."""
_NUMBERS: Final = {field.name: field.type for field in fields(RunMetrics) if field.type in (int, float)}


def _metric(name: str) -> Column:
    kind = _NUMBERS[name]
    return Column(name, Scope.GPU, _METRICS[name], lambda of: kind(getattr(of.metrics, name)), *_TITLES.get(name, ()))


_COMPUTED: Final = (
    Column(
        "algorithms",
        Scope.GPU,
        "convolution algorithms: m memory-optimal, p performance-optimal, or what a dynamic policy settled on",
        lambda of: of.algorithms,
    ),
    Column(
        "fits",
        Scope.SERVER,
        "whether the policy trains the network within the memory of this machine; the numbers of a row that does not "
        "fit are of a replay on a GPU without a capacity",
        lambda of: not of.refusal,
    ),
    *(_metric(name) for name in _METRICS if name != "reserved_bytes"),
    Column(
        "performance_ratio",
        Scope.GPU,
        "iteration_s of base(p), which keeps everything, with unlimited memory, over iteration_s; of a rank with "
        "shards in host memory that of PyTorch's own loop, where it is faster",
        lambda of: float(of.performance_ratio),
        *("speed, % of that with unlimited memory", "speed of unlimited memory", "speed/unlimited"),
    ),
    Column(
        "feature_performance_ratio",
        Scope.GPU,
        "as performance_ratio, of feature_iteration_s",
        lambda of: float(of.feature_performance_ratio),
    ),
    _metric("reserved_bytes"),
    Column(
        "process_bytes",
        Scope.GPU,
        "process: its GPU memory as nvidia-smi shows it: what is reserved, also ahead of its use, and context and "
        "further handles where the profile states them",
        lambda of: of.process_bytes,
        *("GPU memory of the process", "process", "process"),
    ),
    Column(
        "tokens_per_s",
        Scope.GPU,
        "samples_per_s times the tokens of each sequence; empty for networks that read no tokens",
        lambda of: float(of.tokens * of.metrics.samples_per_s) if of.tokens else "",
    ),
    Column(
        "server_samples_per_s",
        Scope.SERVER,
        "samples per second until the last GPU is done",
        lambda of: float(of.server_samples_per_s),
        "samples/s of all GPUs",
    ),
    Column(
        "refusal",
        Scope.SERVER,
        "why a policy does not fit: which request failed, its size, what was free and what held the rest; or why it "
        "has no plan, in which case all numbers are missing",
        lambda of: of.refusal,
    ),
)

COLUMNS: Final[Mapping[str, Column]] = {
    **{name: Column(name, Scope.ROW, meaning, label=_ROW_LABELS.get(name, "")) for name, meaning in _ROW.items()},
    **{column.name: column for column in _COMPUTED},
}
"""All columns by name."""
RUN: Final = ("network", "batch_size", "gpu", "policy", *(column.name for column in _COMPUTED))
"""Columns of `results.csv`, a row for each policy and GPU."""


def cells(columns: Iterable[str], stated: Mapping[str, Value], measured: Measured | None) -> Row:
    """Return a row of stated cells and of cells computed from `measured`, which are empty if it is None."""
    return tuple(
        stated[name] if name in stated else "" if measured is None else COLUMNS[name].of(measured) for name in columns
    )


def result_rows(result: ScenarioResult) -> tuple[Row, ...]:
    """Return the rows of `results.csv`, policies without a plan last."""

    def named(policy: str, gpu: Value = "") -> dict[str, Value]:
        workload = result.workload
        return {"network": workload.graph.name, "batch_size": workload.batch_size, "gpu": gpu, "policy": policy}

    rows = tuple(cells(RUN, named(row.policy, row.gpu), Measured.of(result, row)) for row in result.results)
    return (*rows, *(cells(RUN, named(each.policy) | {"refusal": each.reason}, None) for each in result.declined))
