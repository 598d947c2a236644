"""Policies held against each other: the columns of `compare.csv`, the table on the terminal, and what it says."""

from collections.abc import Iterator

from vdnnsim.analysis.comparison import Comparison, Standing
from vdnnsim.analysis.memory import runtime_bytes
from vdnnsim.analysis.results import PolicyResult
from vdnnsim.dnn.samples import sample_of
from vdnnsim.hardware.server import Gpu
from vdnnsim.report.columns import Row
from vdnnsim.report.findings import refusals, workload_text
from vdnnsim.report.scale import byte_scale
from vdnnsim.report.summary_columns import (
    SummaryColumn,
    memory_column,
    offloaded_column,
    quantity_column,
    rate_column,
    speed_column,
    text_column,
    time_column,
)
from vdnnsim.units import format_bytes, format_seconds

COLUMNS = (
    "network",
    "batch_size",
    "policy",
    "algorithms",
    "outcome",
    "time_rank",
    "memory_rank",
    "on_front",
    "iteration_s",
    "images_per_s",
    "max_memory_bytes",
    "offloaded_bytes",
    "host_memory_bytes",
    "performance_ratio",
    "runtime_bytes",
    "reason",
)
"""`outcome` is `fits`, `does not fit` or `no plan`, ranks and front are of those that fit; numbers are SI, and those of
a policy that does not fit are of a replay on a GPU without a capacity."""

FITS, DOES_NOT_FIT, NO_PLAN = "fits", "does not fit", "no plan"
FRONT = "*"
"""Marks a policy than which no other is better in time or memory and no worse in the other."""


def comparison_rows(comparison: Comparison) -> tuple[Row, ...]:
    """Return the rows of `compare.csv`: the policies that fit by rank, then those that do not, then those without."""
    result = comparison.result
    head, gpu = (result.workload.graph.name, result.workload.batch_size), result.server.gpu
    fitting: list[Row] = [
        (
            *head,
            *_names(each.row),
            FITS,
            each.time_rank,
            each.memory_rank,
            each.on_front,
            *_numbers(each.row, result.server.gpu),
            "",
        )
        for each in comparison.standings
    ]
    unfit: list[Row] = [
        (*head, *_names(row), DOES_NOT_FIT, "", "", False, *_numbers(row, gpu), row.refusal.explain())
        for row in comparison.unfit
        if row.refusal is not None
    ]
    declined: list[Row] = [
        (*head, each.policy, "", NO_PLAN, "", "", False, *("",) * 7, each.reason) for each in comparison.declined
    ]
    return (*fitting, *unfit, *declined)


def _names(row: PolicyResult) -> tuple[str, str]:
    return row.policy, row.algorithms


def _numbers(row: PolicyResult, gpu: Gpu) -> Row:
    metrics = row.metrics
    return (
        float(metrics.iteration_s),
        float(metrics.images_per_s),
        metrics.max_memory_bytes,
        metrics.offloaded_bytes,
        metrics.host_memory_bytes,
        float(row.performance_ratio),
        runtime_bytes(row.trace, gpu),
    )


def comparison_columns(comparison: Comparison) -> tuple[SummaryColumn, ...]:
    """Return the table of the policies that fit, the fastest first, with one unit for each column."""
    standings, gpu = comparison.standings, comparison.result.server.gpu
    rows = [each.row for each in standings]
    runtimes = [runtime_bytes(row.trace, gpu) for row in rows]
    return (
        SummaryColumn("rank", ("rank", ""), tuple(str(each.time_rank) for each in standings)),
        text_column("policy", (row.policy for row in rows)),
        text_column("front", (FRONT if each.on_front else "" for each in standings)),
        time_column(rows),
        rate_column(sample_of(comparison.result.workload.graph), rows),
        memory_column(rows),
        SummaryColumn("rank by memory", ("rank by", "memory"), tuple(str(each.memory_rank) for each in standings)),
        quantity_column("runtime memory", "runtime", byte_scale(runtimes), runtimes),
        offloaded_column(rows),
        speed_column(rows),
    )


def comparison_title(comparison: Comparison) -> str:
    """Return what the picture says: how many fit, and the two ends of the front."""
    standings, capacity = comparison.standings, comparison.result.server.gpu.memory_bytes
    total = len(standings) + len(comparison.unfit) + len(comparison.declined)
    what = f"{workload_text(comparison.result)} into {format_bytes(capacity)}"
    if not standings:
        return f"None of {total} {'policy' if total == 1 else 'policies'} fits {what}"
    front = [each for each in standings if each.on_front]
    fast, small = _point(front[0]), _point(min(front, key=lambda each: each.memory_rank))
    ends = f": {fast}" if fast == small else f": from {fast} to {small}"
    which = f"{len(standings)} of {total} {'policy' if total == 1 else 'policies'}"
    return f"{which} {'fits' if len(standings) == 1 else 'fit'} {what}{ends}"


def _point(standing: Standing) -> str:
    metrics = standing.row.metrics
    return f"{standing.row.policy} {format_seconds(metrics.iteration_s)} in {format_bytes(metrics.max_memory_bytes)}"


def apart(comparison: Comparison) -> Iterator[str]:
    """Yield a line for each reason for which policies do not fit, and for each policy that has no plan."""
    yield from (f"does not fit: {line}" for line in refusals(comparison.result))
    yield from (f"no plan: {each.policy}: {each.reason}" for each in comparison.declined)
