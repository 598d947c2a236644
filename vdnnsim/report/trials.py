"""What it cost the policies to decide that decide by trials, in sentences."""

from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.plans.training_plan import ProfilingPass
from vdnnsim.units import format_seconds

_MOST_PASSES = 8  # that are told one by one; vdnn_dyn takes 7 at most


def profiling(result: ScenarioResult) -> tuple[str, ...]:
    """Return for each policy that decided by trials one line with its passes and their cost; then what they add to."""
    lines = []
    for each in result.slowest:
        passes = each.trace.plan.passes
        if passes:
            tried = _tried(passes)
            total_s = sum(one.cost_s for one in passes)
            lines.append(
                f"{each.policy} settled on {each.algorithms} after {len(passes)} "
                f"{'pass' if len(passes) == 1 else 'passes'}: {tried}; {_spent(total_s, each.metrics.iteration_s)}"
            )
    if lines and result.algorithm_profiling_s:
        lines.append(
            "trying every algorithm of every convolution once takes "
            f"{format_seconds(result.algorithm_profiling_s)}, as in any framework that picks the fastest"
        )
    return tuple(lines)


def _tried(passes: tuple[ProfilingPass, ...]) -> str:
    if len(passes) > _MOST_PASSES:
        fitting = sum(one.fits for one in passes)
        return f"{fitting} fit and {len(passes) - fitting} do not; run.json has each"
    return ", ".join(f"{one.name} {'fits' if one.fits else 'does not fit'}{_cost(one.cost_s)}" for one in passes)


def _cost(seconds: float) -> str:
    return f" ({format_seconds(seconds)})" if seconds else " (at once)"


def _spent(seconds: float, iteration_s: float) -> str:
    if not seconds:
        return "no time is spent"
    iterations = seconds / iteration_s
    amount = f"{iterations:.1f} iterations' time" if iterations >= 0.1 else "less than a tenth of an iteration's time"
    return f"{format_seconds(seconds)} in all, {amount}, spent once"
