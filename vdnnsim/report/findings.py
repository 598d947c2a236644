"""Findings of a result in sentences: the best policy, its speed beside unlimited memory, why others do not fit."""

from collections.abc import Iterable
from typing import Final

from vdnnsim.analysis.results import PolicyResult, ScenarioResult, Setup, Shortage
from vdnnsim.cost.trust import PEAKS_TOO_LOW
from vdnnsim.dnn.captured_step import model_name
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layout import parse_layout
from vdnnsim.dnn.samples import sample_of
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.engine.host import Execution
from vdnnsim.files.messages import listed
from vdnnsim.report.caveats import by_peaks
from vdnnsim.report.scale import percent, rate_text
from vdnnsim.units import format_bytes, format_seconds

_LONGEST_NAME = 40
TOO_LOW: Final = f"peaks may be {percent(PEAKS_TOO_LOW)} too low"
_JUST_FITS = f"It just fits, for {TOO_LOW}"


def workload_text(asked: Setup) -> str:
    """Return network and batch size as the papers write them: `vgg416 (32)`."""
    return f"{_name(asked.workload)} ({asked.workload.batch_size})"


def report_title(asked: Setup) -> str:
    """Return the title of a report: of a captured model its name and batch, `Llama, batch 16`, else the scenario's."""
    is_captured = isinstance(asked.workload, CapturedWorkload)
    return f"{_name(asked.workload)}, batch {asked.workload.batch_size}" if is_captured else asked.name


def _name(workload: Workload) -> str:
    """Return the name of the network; of a long one its end."""
    name = workload.graph.name
    if isinstance(workload, CapturedWorkload):
        name = model_name(name)
    return name if len(name) <= _LONGEST_NAME else f"...{name[3 - _LONGEST_NAME :]}"


def caption(asked: Setup, batch: str | None = None) -> str:
    """Return workload and machine in one line; `batch` stands in the place of the batch size."""
    gpu, workload = asked.server.gpu, asked.workload
    number, each = ("", "") if asked.gpus == 1 else (f"{asked.gpus} x ", " each")
    sample = sample_of(workload.graph)
    several = sample.names if workload.batch_size > 1 else sample.name
    texts = f" {several}{sample.length}" if sample.length else ""
    gradients = "" if asked.gradients is None else f", gradients: {asked.gradients.value}"
    size = batch or f"batch {workload.batch_size}{texts}"
    parts = asked.captured.base.micro_batches if workload.as_captured and asked.captured else workload.rounds
    if parts > 1:
        size += f" in {parts} micro-batches"
    how = "" if asked.execution is Execution.EAGER else f", {asked.execution.value},"
    if asked.captured and (step := asked.captured.base).ranks > 1:
        some = "" if asked.gpus == step.ranks else "one of " if asked.gpus == 1 else f"{asked.gpus} of "
        how += f" as {some}{step.ranks} ranks ({step.parallel})"
    return (
        f"{_name(workload)}, {size}{'' if workload.as_captured else each}, {workload.precision.value}, "
        f"{workload.mode.value}{how} on {number}{gpu.name} with {format_bytes(gpu.memory_bytes)}{each}{gradients} "
        f"({asked.memory_model.value} memory model)"
    )


def question_text(asked: Setup, line: str = "") -> str:
    """Return the question that a report answers: a line on it, by default its caption, and the loop of a model."""
    step = None if asked.captured is None else asked.captured.base
    blocks = step.program.checkpointing if step else ""
    words = step.update if step else "", f"checkpointing {blocks}" if blocks else ""
    return ", ".join((line or caption(asked), *filter(None, words)))


def place(result: ScenarioResult, row: PolicyResult) -> str:
    """Return which of several GPUs is shown: `GPU 1 of 2, `; empty for one."""
    return f"GPU {row.gpu} of {result.gpus}, " if result.gpus > 1 else ""


def headline(result: ScenarioResult, shown: PolicyResult) -> str:
    """Return the memory and speed of one policy in one line."""
    metrics, capacity = shown.metrics, result.server.gpu.memory_bytes
    verb = "trains" if result.workload.mode is Mode.TRAINING else "runs"
    held = result.needed_bytes(shown)
    asked = "" if held == metrics.allocated_bytes else f" ({format_bytes(metrics.allocated_bytes)} allocated)"
    if shown.refusal is not None:
        needed = f"{format_bytes(held)}{asked}"
        pool, reason = {
            Shortage.GPU: (format_bytes(capacity), f"it would take {needed}"),
            Shortage.GAPS: (format_bytes(capacity), f"it would take {needed}, for gaps between its buffers"),
            Shortage.HOST: (f"{format_bytes(shown.refusal.capacity_bytes)} of host memory", "it offloads more"),
        }[shown.shortage or Shortage.GPU]
        return f"{shown.policy} does not fit {workload_text(result)} into {pool}: {reason}"
    used, there = format_bytes(held), format_bytes(capacity)
    number, unit = used.split()
    if there.endswith(f" {unit}"):
        used = number
    return (
        f"{by_peaks(result.kernels)}{shown.policy} {verb} {workload_text(result)} in {used} of {there}{asked} "
        f"at {percent(shown.performance_ratio)} of the speed with unlimited memory"
    )


def conclusions(result: ScenarioResult) -> tuple[str, ...]:
    """Return the verdict; of a captured model with one policy whether that fits, of a trace both."""
    several = len(result.slowest) > 1
    if result.captured is None or (several and result.captured.base.lifetimes):
        return (verdict(result),)
    return (_answer(result), *((verdict(result),) if several else ()))


def _answer(result: ScenarioResult) -> str:
    gpu, best = result.server.gpu, result.leader
    if best is None:
        return f"{headline(result, result.subject)}."
    rate = rate_text(sample_of(result.workload.graph), best.metrics.samples_per_s) + whose(result.workload, 1)
    if result.captured is not None and not result.captured.base.lifetimes:
        seconds = format_seconds(best.metrics.iteration_s)
        return f"It takes {seconds} per iteration, {rate}; a trace does not say what fits."
    taken = f"{format_bytes(result.needed_bytes(best))} of the {format_bytes(gpu.memory_bytes)} of {gpu.name}"
    how = _JUST_FITS if result.just_fits(best) else "It fits"
    time = format_seconds(best.metrics.iteration_s)
    return f"{how}: {best.policy} takes {taken}, {time} per iteration, {rate}."


def whose(workload: Workload, gpus: int) -> str:
    """Return what has a throughput: ` of all GPUs`, or ` of one rank` of several; empty for one GPU.

    Ranks that split layers, and stages of a pipeline, train the same samples: ` of 2 ranks`.
    """
    if not isinstance(workload, CapturedWorkload) or workload.captured.ranks == 1:
        return " of all GPUs" if gpus > 1 else ""
    step = workload.captured
    together = step.pipeline * (parse_layout(step.parallel).tensor if step.parallel else 1)
    return " of one rank" if together == 1 else f" of {together} ranks"


def comparison(result: ScenarioResult) -> str:
    """Return how many policies fit, and the speed of the best, in one line."""
    best, capacity = result.leader, format_bytes(result.server.gpu.memory_bytes)
    total = len(result.slowest)
    if best is None:
        lacking = [each.shortage for each in result.slowest]
        reasons = "".join(
            f", {'' if total == 1 else 'all ' if lacking.count(what) == total else f'{lacking.count(what)} '}{text}"
            for what, text in (
                (Shortage.GAPS, "because of gaps between buffers"),
                (Shortage.HOST, "for want of host memory"),
            )
            if what in lacking
        )
        return f"{_none(result)} {workload_text(result)} into {capacity}{reasons}"
    fitting = how_many_fit(result, total)
    return f"{fitting}, {best.policy} at {percent(best.performance_ratio)} of the speed with unlimited memory"


def how_many_fit(result: ScenarioResult, total: int) -> str:
    """Return how many policies fit: `3 of 9 policies fit vgg16 (64) into 12.0 GiB, 1 of them just`."""
    fitting, just = (sum(map(each, result.slowest)) for each in (lambda row: row.fits, result.just_fits))
    verb, some = "just " * (0 < just == fitting), f", {just} of them just" * (0 < just < fitting)
    return (
        f"{by_peaks(result.kernels)}{fitting} of {counted(total)} {verb}{'fits' if fitting == 1 else 'fit'} "
        f"{workload_text(result)} into {format_bytes(result.server.gpu.memory_bytes)}{some}"
    )


def counted(policies: int) -> str:
    """Return a number of policies: `1 policy`, `9 policies`."""
    return f"{policies} {'policy' if policies == 1 else 'policies'}"


def verdict(result: ScenarioResult) -> str:
    """Return the best policy and its cost in two sentences, or that none fits."""
    total, best, first = len(result.slowest), result.fastest_fitting, result.leader
    if first is None:
        return f"{_none_fits(result)}."
    fitting = sum(each.fits for each in result.slowest)
    which = f"{listed([each.policy for each in best])} " + (
        "alone fits" if fitting == 1 else "is the fastest that fits" if len(best) == 1 else "are the fastest that fit"
    )
    metrics = first.metrics
    everywhere = whose(result.workload, 1) or (f" on each of {result.gpus} GPUs" if result.gpus > 1 else "")
    same = len({(each.metrics.allocated_bytes, each.metrics.host_memory_bytes) for each in best}) == 1
    # PyTorch keeps less of a captured model than base(p) does.
    everything, moved = format_bytes(result.oracle.allocated_bytes), format_bytes(metrics.host_memory_bytes)
    kept = f", where keeping everything takes {everything}" if result.captured is None else ""
    pinned = f", and {moved} of pinned host memory" if metrics.host_memory_bytes else ""
    just = f" {_JUST_FITS}." if result.just_fits(first) else ""
    return (
        f"Of {counted(total)}, {which}: {format_seconds(metrics.iteration_s)} per iteration, "
        f"{rate_text(sample_of(result.workload.graph), metrics.samples_per_s)}{everywhere}. "
        f"That is {percent(first.performance_ratio)} of the speed with unlimited memory. "
        f"{'At' if same else f'{first.policy} has at'} most {format_bytes(metrics.allocated_bytes)} of GPU memory "
        f"{'are ' if same else ''}allocated{kept}{pinned}.{_held(result, first)}{just}"
    )


def _held(result: ScenarioResult, row: PolicyResult) -> str:
    """Return the process memory of a policy that fits, by part; empty where it is what was requested."""
    gpu, asked = result.server.gpu, row.metrics.allocated_bytes
    held, pool, needed = row.held_bytes(gpu), row.trace.pool_bytes, result.needed_bytes(row)
    if held == asked:
        return ""
    if needed != held:
        return f" Its process needs {format_bytes(needed)}; {format_bytes(pool)} are reserved ahead for its blocks."
    parts = (("allocated", asked), ("reserved beyond that", pool - asked), ("of CUDA's context", held - pool))
    all_of_it = listed([f"{format_bytes(nbytes)} {what}" for what, nbytes in parts if nbytes > 0])
    return f" Its process takes {format_bytes(held)} of {format_bytes(gpu.memory_bytes)}: {all_of_it}."


def _none_fits(result: ScenarioResult) -> str:
    least = result.subject
    held, alone = format_bytes(result.needed_bytes(least)), len(result.slowest) == 1
    needed = f"it would take {held}" if alone else f"{least.policy} would take the least, {held}"
    reason = ""
    if least.shortage is Shortage.GAPS:
        reason = (
            f", which would fit but for the gaps between its buffers that the {result.memory_model.value} memory "
            "model leaves"
        )
    elif least.shortage is Shortage.HOST and least.refusal is not None:
        reason = (
            f", and to offload more than the {format_bytes(least.refusal.capacity_bytes)} of "
            f"{least.refusal.pool.value} that there are"
        )
    capacity = format_bytes(result.server.gpu.memory_bytes)
    return f"{_none(result)} {workload_text(result)} into {capacity}; {needed}{reason}"


def _none(result: ScenarioResult) -> str:
    rows = result.slowest
    return f"{rows[0].policy} does not fit" if len(rows) == 1 else f"None of {len(rows)} policies fits"


def shared(reasons: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the names that share each reason, in order."""
    names: dict[str, list[str]] = {}
    for reason, name in reasons:
        names.setdefault(reason, []).append(name)
    return names


def refusals(result: ScenarioResult) -> tuple[str, ...]:
    """Return a line for each reason for which policies do not fit."""
    policies = shared(
        (reason, rows[0].policy + ("" if len(gpus) == len(rows) else f" on GPU {listed(gpus)}"))
        for rows in result.by_policy
        for reason, gpus in shared(
            (each.refusal.explain(), str(each.gpu)) for each in rows if each.refusal is not None and each.is_short
        ).items()
    )
    return tuple(f"{listed(names)}: {reason}" for reason, names in policies.items())


def budgets(result: ScenarioResult) -> str:
    """Return device, host and pinned memory that the subject of the pictures needs."""
    row = result.subject
    of_each = ", ".join(
        f"{what} {format_bytes(need)} {'of' if need <= there else 'where there are'} {format_bytes(there)}"
        for what, need, there in result.needs
    )
    searched = ", the most while cuDNN searches for convolutions in the first iteration" * row.trace.peaks_in_search
    sharing = result.sharing_a_host
    share = f"; of the host that is the share of one of {sharing} ranks" if sharing > result.gpus else ""
    return f"Memory that {row.policy} needs{' for each GPU' * (result.gpus > 1)}: {of_each}{share}{searched}."
