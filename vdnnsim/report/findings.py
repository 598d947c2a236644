"""What the numbers say, in sentences: which policy is best, what it costs, why others do not fit.

The oracular baseline is base(p) on a GPU without a capacity; speed and memory are stated against it.
"""

from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.dnn.workload import Mode
from vdnnsim.report.scale import percent
from vdnnsim.units import format_bytes, format_seconds


def workload_text(result: ScenarioResult) -> str:
    """The network and its batch size as the papers write them: `vgg416 (32)`."""
    return f"{result.workload.graph.name} ({result.workload.batch_size})"


def caption(result: ScenarioResult) -> str:
    """What was run, in one line."""
    gpu, workload = result.server.gpu, result.workload
    return (
        f"{workload.graph.name}, batch {workload.batch_size}, {workload.element_type.value}, {workload.mode.value} on "
        f"{gpu.name} with {format_bytes(gpu.memory_bytes)} ({result.memory_model.value} memory model)"
    )


def fastest_fitting(result: ScenarioResult) -> tuple[PolicyResult, ...]:
    """Return the fastest of the policies that fit, all of them if several are equally fast; none if none fits."""
    fitting = [each for each in result.results if each.fits]
    best_s = min((each.metrics.iteration_s for each in fitting), default=0.0)
    return tuple(each for each in fitting if each.metrics.iteration_s == best_s)


def subject(result: ScenarioResult) -> PolicyResult:
    """Return the one policy that a picture shows.

    That is the one that decided by trials, such as vdnn_dyn; else the fastest that fits; else the last.
    """
    for each in result.results:
        if each.fits and each.trace.plan.passes:
            return each
    return (*fastest_fitting(result), result.results[-1])[0]


def headline(result: ScenarioResult, shown: PolicyResult) -> str:
    """Return in one line how one policy does."""
    metrics, capacity = shown.metrics, result.server.gpu.memory_bytes
    verb = "trains" if result.workload.mode is Mode.TRAINING else "runs"
    if not shown.fits:
        return (
            f"{shown.policy} does not fit {workload_text(result)} into {format_bytes(capacity)}: "
            f"it would take {format_bytes(metrics.max_memory_bytes)}"
        )
    used, there = format_bytes(metrics.max_memory_bytes), format_bytes(capacity)
    number, unit = used.split()
    if there.endswith(f" {unit}"):
        used = number
    return (
        f"{shown.policy} {verb} {workload_text(result)} in {used} of {there} "
        f"at {percent(shown.performance_ratio)} of the oracular speed"
    )


def comparison(result: ScenarioResult) -> str:
    """Return in one line how many policies fit, and how fast the best of them is."""
    best, capacity = fastest_fitting(result), format_bytes(result.server.gpu.memory_bytes)
    total, fitting = len(result.results), sum(each.fits for each in result.results)
    if not best:
        return f"None of {_count(total)} fits {workload_text(result)} into {capacity}"
    leader = subject(result) if subject(result) in best else best[0]
    return (
        f"{fitting} of {_count(total)} {'fits' if fitting == 1 else 'fit'} {workload_text(result)} into {capacity}, "
        f"{leader.policy} at {percent(leader.performance_ratio)} of the oracular speed"
    )


def verdict(result: ScenarioResult) -> str:
    """Return in two sentences which policy is best and what it costs; in one, that none fits."""
    total, best = len(result.results), fastest_fitting(result)
    capacity, oracle = result.server.gpu.memory_bytes, result.oracle
    if not best:
        least = min(result.results, key=lambda each: each.metrics.max_memory_bytes)
        return (
            f"None of {_count(total)} fits {workload_text(result)} into {format_bytes(capacity)}; {least.policy} "
            f"asks for the least, {format_bytes(least.metrics.max_memory_bytes)}."
        )
    fitting = sum(each.fits for each in result.results)
    names = " and ".join(each.policy for each in best)
    which = (
        f"{names} alone fits" if fitting == 1 else f"{names} {'is' if len(best) == 1 else 'are'} the fastest that fit"
    )
    metrics = best[0].metrics
    return (
        f"Of {_count(total)}, {which}: {format_seconds(metrics.iteration_s)} per iteration, "
        f"{metrics.images_per_s:.4g} images/s. That is {percent(best[0].performance_ratio)} of the speed of the "
        f"oracular baseline, with at most {format_bytes(metrics.max_memory_bytes)} of GPU memory where the baseline "
        f"would take {format_bytes(oracle.max_memory_bytes)}, and with {format_bytes(metrics.host_memory_bytes)} of "
        "pinned host memory."
    )


def refusals(result: ScenarioResult) -> tuple[str, ...]:
    """Return for each policy that does not fit one line that says who asked for how much and what held the rest."""
    return tuple(f"{each.policy}: {each.refusal.explain()}" for each in result.results if each.refusal is not None)


def profiling(result: ScenarioResult) -> tuple[str, ...]:
    """Return for each policy that decided by trials one line with its passes and their cost; then what they add to."""
    lines = []
    for each in result.results:
        passes = each.trace.plan.passes
        if passes:
            total_s = sum(one.cost_s for one in passes)
            tried = ", ".join(
                f"{one.name} {'fits' if one.fits else 'does not fit'} ({format_seconds(one.cost_s)})" for one in passes
            )
            lines.append(
                f"{each.policy} settled on {each.algorithms} after {len(passes)} passes: {tried}; "
                f"{format_seconds(total_s)} in all, {total_s / each.metrics.iteration_s:.1f} iterations' time, "
                "spent once"
            )
    if lines:
        lines.append(
            "trying every algorithm of every convolution once takes "
            f"{format_seconds(result.algorithm_profiling_s)}, as in any framework that picks the fastest"
        )
    return tuple(lines)


def _count(policies: int) -> str:
    return f"{policies} {'policy' if policies == 1 else 'policies'}"
