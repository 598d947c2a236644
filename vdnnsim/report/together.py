"""What several GPUs do to each other, in sentences: whose copies take longer than alone, who waits for whom."""

from vdnnsim.analysis.contention import timed_copies, total_stretch
from vdnnsim.analysis.exchanges import exchanges, waits_s
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.plan.operations import Stream
from vdnnsim.trace import ServerTrace, StallCause
from vdnnsim.units import format_seconds

_NOTICED = 1e-3
"""Share of an iteration below which GPUs come at the same moment."""


def together(result: ScenarioResult) -> tuple[str, ...]:
    """Return a line for each policy; none for one GPU alone."""
    return tuple(_line(result, rows) for rows in result.by_policy if result.gpus > 1)


def contention(result: ScenarioResult, rows: tuple[PolicyResult, ...]) -> str:
    """Return how much longer the copies of a policy took than each takes alone: `copies take 1.93 times as long`."""
    copies = [timed_copies(row.trace, result.server, row.gpu) for row in rows]
    if not any(copies):
        return "no map is copied"
    stretches = [f"{total_stretch(each):.2f}" for each in copies]
    low, high = min(stretches, key=float), max(stretches, key=float)
    return f"copies take {low if low == high else f'{low} to {high}'} times as long as alone"


def _line(result: ScenarioResult, rows: tuple[PolicyResult, ...]) -> str:
    iteration = rows[0].together
    assert iteration is not None
    parts = [contention(result, rows)]
    if result.gradients is not None:
        exposed_s = max(map(_exposed_s, rows))
        parts += [_waiting(iteration), f"no kernel hides {format_seconds(exposed_s)} of exchanges"]
    return f"{rows[0].policy}: {'; '.join(parts)}"


def _waiting(iteration: ServerTrace) -> str:
    """Return which GPU waits longest before exchanges, and for which."""
    waits = waits_s(iteration)
    longest = max(range(len(waits)), key=lambda gpu: sum(waits[gpu]))
    total_s = sum(waits[longest])
    if total_s < _NOTICED * iteration.iteration_s:
        return "all GPUs come to the exchanges of gradients together"
    found = exchanges(iteration)
    for_whom = max(range(len(waits)), key=lambda gpu: waits[longest][gpu])
    often = sum(each.last == for_whom for each in found)
    return (
        f"GPU {longest} waits longest before exchanges, {format_seconds(total_s)}, most of it for GPU {for_whom}, the "
        f"last to {often} of {len(found)}"
    )


def _exposed_s(row: PolicyResult) -> float:
    """Return for how long exchanges keep a GPU from its kernels, updates among them, or last beyond all of these."""
    waited_s = dict(row.metrics.stall_by_cause).get(StallCause.AGGREGATION, 0.0)
    ends_s = (span.end_s for span in row.trace.spans_on(Stream.COMMUNICATION))
    return waited_s + max(0.0, max(ends_s, default=0.0) - row.trace.spans_on(Stream.COMPUTE)[-1].end_s)
