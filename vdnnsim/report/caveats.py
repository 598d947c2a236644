"""Caveats of results in sentences: origins of kernel times, rows that compute something else, contention of GPUs."""

from collections.abc import Iterable, Iterator
from typing import Final

from vdnnsim.analysis.kernel_origins import KernelOrigins
from vdnnsim.analysis.metrics import bubble_seconds
from vdnnsim.analysis.rank_times import Awaited, rank_times
from vdnnsim.analysis.results import PolicyResult, ScenarioResult, Setup
from vdnnsim.analysis.several_gpus import exchanges, timed_copies, total_stretch, waits_s
from vdnnsim.analysis.utilization import flop_by_module, flop_ratio
from vdnnsim.cost.convolution_shape import LOAD_BYTES, multiple
from vdnnsim.cost.narrow_loads import loses_by_narrow_loads
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.collective import CollectiveKind
from vdnnsim.dnn.kernel_work import ProductWork
from vdnnsim.dnn.layers import LayerKind, Phase
from vdnnsim.dnn.layout import Layout, parse_layout
from vdnnsim.dnn.networks import CALLED_OTHERWISE
from vdnnsim.dnn.samples import sample_of
from vdnnsim.dnn.workload import Mode, Optimizer, Workload
from vdnnsim.files.messages import listed
from vdnnsim.hardware.server import Origin
from vdnnsim.memory.choices import is_of_pytorch
from vdnnsim.plans.operations import Compute, Stream
from vdnnsim.plans.trace import ServerTrace, StallCause
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.report.scale import percent
from vdnnsim.units import format_seconds

_WORDS: Final = {
    Origin.MEASURED: "measured",
    Origin.FITTED: "from rates fitted to measurements of this card",
    Origin.PAPER: "from rates of a paper",
    Origin.ASSUMED: "from rates carried over from other cards or assumed",
    Origin.DATASHEET: "from datasheet peaks, which no kernel reaches",
}
"""In the order in which they are listed."""
_LEAST_SHARE: Final = 0.005
"""Share of the seconds from which an origin is shown."""
_NOTICED_FLOP: Final = 0.02
"""Share of the FLOPs of forward's products."""
_IN_16_BITS: Final = ("bfloat16", "float16")
_ALIGNED_ELEMENTS: Final = LOAD_BYTES // 2
_ROUNDING = 1e-9
_NOTICED = 1e-3
"""Share of an iteration; GPUs that wait for less count as arriving together."""


def peaks_note(kernels: KernelOrigins) -> str:
    """Return the caveat for the second line of a picture: `; kernel times are datasheet peaks`, or nothing."""
    if Origin.DATASHEET not in kernels.seconds:
        return ""
    return f"; {'' if len(kernels.seconds) == 1 else 'some '}kernel times are datasheet peaks"


def by_peaks(kernels: KernelOrigins) -> str:
    """Return the prefix of a title whose times are datasheet peaks alone; empty for others."""
    return "By datasheet peaks, " if set(kernels.seconds) == {Origin.DATASHEET} else ""


def glossary(labels: Iterable[str], workload: Workload, *, of_speed: bool = True) -> tuple[str, ...]:
    """Return with what speeds are compared where they are shown, and what (m) and (p) of the labels mean."""
    letters = {letter for label in labels for letter in "pm" if f"({letter}" in label}
    chosen = {"p": "(p): the fastest algorithm of each convolution", "m": "(m): the one with the least workspace"}
    compared = "Speed: compared with this GPU with unlimited memory, where base(p) keeps everything"
    if isinstance(workload, CapturedWorkload) and workload.captured.ranks > 1:
        compared += "; a loop that frees what collectives used makes the host issue events for it, if it fits or not"
    meant = "; ".join(text for letter, text in chosen.items() if letter in letters)
    here = "" if workload.has_convolutions else ", of which this model has none"
    return (*([compared] if of_speed else []), *([f"{meant}{here}"] if letters else []))


def remarks(workload: Workload) -> tuple[str, ...]:
    """Return notes on a workload: another name of its network, and that no update is counted."""
    captured = isinstance(workload, CapturedWorkload)
    name = workload.graph.name
    known_as = [f"{name} has {CALLED_OTHERWISE[name]}"] if not captured and name in CALLED_OTHERWISE else []
    counts_none = workload.is_training and workload.optimizer is Optimizer.NONE and not captured
    return (*known_as, *(["No update of the weights is counted: optimizer none"] if counts_none else []))


def kernel_times(kernels: KernelOrigins) -> tuple[str, ...]:
    """Return on what the seconds of kernels rest, and a gap of their table; nothing without kernels."""
    total_s = sum(kernels.seconds.values())
    if not total_s:
        return ()
    resting = [(words, kernels.seconds[origin]) for origin, words in _WORDS.items() if origin in kernels.seconds]
    shown = [(words, seconds) for words, seconds in resting if seconds >= _LEAST_SHARE * total_s]
    several = f" of {kernels.plans} iterations" if kernels.plans > 1 else ""
    if len(shown) == 1:
        origins = f"all {format_seconds(total_s)}{several} {shown[0][0]}"
    else:
        parts = ", ".join(
            f"{format_seconds(seconds)} ({percent(seconds / total_s, 0)}) {words}" for words, seconds in shown
        )
        origins = f"of {format_seconds(total_s)}{several} {parts}"
    caveat = "; copies weigh more here than on the card" if Origin.DATASHEET in kernels.seconds else ""
    return f"Kernel times: {origins}{caveat}", *([f"Kernels: {kernels.gap}"] if kernels.gap else [])


def capture_lines(asked: Setup) -> tuple[str, ...]:
    """Return device, framework, notes and unknown operations of a captured model, and its slow products."""
    if asked.captured is None:
        return ()
    step = asked.captured.base
    unknown = [each.name for each in step.operations if not each.known]
    updated = f", the update of {step.update}" if step.update else ""
    lines = [f"Captured: {step.model} as {step.device} by {step.framework}{updated}", *step.notes]
    if unknown:
        names = ", ".join(dict.fromkeys(unknown))
        lines.append(
            f"Unknown: of {len(unknown)} of {len(step.operations)} operations FLOPs are what PyTorch counts, or none: "
            f"{names}"
        )
    slow = _unaligned_products(step) if loses_by_narrow_loads(asked.server) else ()
    return (*lines, *slow, *filter(None, (asked.captured.batches,)))


def _unaligned_products(step: CapturedStep) -> tuple[str, ...]:
    """Return a line on large products in 16 bits whose rows are no multiples of 16 B; torch.compile pads them."""
    forward = [(each, each.work) for each in step.operations if each.phase is Phase.FORWARD]
    products = [(each, work) for each, work in forward if isinstance(work, ProductWork)]
    least_flop = _NOTICED_FLOP * sum(each.all_flop for each, _ in products)
    lengths = {
        step.path_of(each): length
        for each, work in products
        for length in (work.k, work.n)
        if each.element_type in _IN_16_BITS and each.all_flop >= least_flop and length % _ALIGNED_ELEMENTS
    }
    if not lengths or step.compiled:
        return ()
    rows = " and ".join(f"{length} elements ({path})" for path, length in lengths.items())
    padded = " or ".join(f"{multiple(each, _ALIGNED_ELEMENTS)}" for each in set(lengths.values()))
    slow = "do not begin at multiples of 16 B, so products load them slowly"
    return (f"Rows of {rows} {slow}; a length of {padded} avoids it",)


def known(result: ScenarioResult) -> tuple[str, ...]:
    """Return the caveats of all numbers of a scenario."""
    beyond = ", ".join(row.policy for row in result.slowest if row.performance_ratio > 1 + _ROUNDING)
    why = "gradients of weights come before those of data, and are exchanged earlier than those of base(p)"
    pretended = "Profile: of a pretended GPU with given times: nothing was measured on a card"
    return (
        *kernel_times(result.kernels),
        *([pretended] if result.server.is_pretended else []),
        *profile_gaps(result),
        *capture_lines(result),
        *part_statistics(result),
        *([f"Faster than base(p) with unlimited memory: {beyond}: {why}"] if beyond else []),
    )


def profile_gaps(asked: Setup) -> Iterator[str]:
    """Yield what a profile lacks that a scenario needs: a rate of its element type, of which it says why, a context."""
    server, precision = asked.server, asked.workload.precision
    path = f"gpu.peak.{(precision.autocast or precision.element_type).value}"
    assumed = (each.source for each in server.figures if each.path == path and each.origin is Origin.ASSUMED)
    yield from (f"{path} of {server.name} is assumed: {source}" for source in assumed)
    if is_of_pytorch(asked.memory_model) and not server.gpu.context_bytes:
        yield f"{server.name} states no context of CUDA, so a process takes that more than is said here"


def part_statistics(result: ScenarioResult) -> tuple[str, ...]:
    """Return a line for each policy that splits the batch of a network with batch normalization."""
    if result.workload.mode is not Mode.TRAINING:
        return ()
    size, sample = result.workload.batch_size, sample_of(result.workload.graph)
    layers, lines = result.workload.graph.layers, []
    for row in result.slowest:
        plan = row.trace.plan
        if (count := plan.workload.part_size) < size and any(
            isinstance(each, Compute) and layers[each.layer].kind is LayerKind.BN for each in plan.operations
        ):
            part = f"{count} {sample.name if count == 1 else sample.names}"
            lines.append(
                f"{row.policy}: batch normalization takes its statistics over parts of {part}, not over all {size}: "
                "its training differs slightly from that of the other rows"
            )
    return tuple(lines)


def contention_lines(result: ScenarioResult) -> tuple[str, ...]:
    """Return a line for each policy on several GPUs, or of one rank of several: what its kernels wait for."""
    if result.gpus > 1:
        return tuple(_contention_line(result, rows) for rows in result.by_policy)
    is_rank = result.captured is not None and result.captured.base.ranks > 1
    lines = [f"{rows[0].policy}: {_exposed(result, rows)}" for rows in result.by_policy if is_rank]
    if result.captured is not None and result.captured.base.is_sharded:
        plans = [row.trace.plan for row in result.slowest]
        keeping = [each.policy for each in plans if each.certificate is None and _recomputes(each)]
        if keeping:
            lines.append(
                f"{listed(keeping)}: keeps for its recomputation weights that forward gathered; PyTorch gathers them "
                "again, as with `--checkpointing full`"
            )
    return tuple(lines)


def _recomputes(plan: TrainingPlan) -> bool:
    return any(isinstance(each, Compute) and each.repeat for each in plan.operations)


def _exposed(result: ScenarioResult, rows: tuple[PolicyResult, ...]) -> str:
    """Return what kernels of ranks take, what they wait for, in the mean, and how much of their peak they use."""
    times, workload = rank_times([row.trace for row in rows]), result.workload
    assert isinstance(workload, CapturedWorkload), "as ranks are"
    parts = [
        f"{format_seconds(seconds)} {_awaited(each)}"
        for each, seconds in times.waits_s.items()
        if seconds > _NOTICED * times.step_s
    ]
    taken = f"kernels take {format_seconds(times.kernels_s)} of {format_seconds(times.step_s)}"
    waits = f"; they wait {listed(parts)}" if parts else ""
    return "; ".join((f"{taken}{waits}", *_used(result, workload, times.step_s)))


def _used(result: ScenarioResult, workload: CapturedWorkload, step_s: float) -> Iterator[str]:
    """Yield tokens of one GPU, where several ranks train the same, and MFU."""
    step, sample = workload.captured, sample_of(workload.graph)
    layout = parse_layout(step.parallel) if step.parallel else Layout("")
    if sample.tokens and (together := layout.tensor * step.pipeline) > 1:
        yield f"{workload.batch_size * sample.tokens / (together * step_s):.0f} tokens/s per GPU"
    ranks = [each.captured for each in workload.pipeline or (workload,)]
    used = flop_ratio(workload.rounds * sum(flop_by_module(ranks, 1).values()), step_s, step, result.server)
    if used is not None and workload.is_training:
        # What several ranks compute whole counts each time, for the model is not there without a layout.
        yield f"MFU {'at most ' if layout.tensor > 1 or layout.is_given else ''}{percent(used, 0)}"


def _awaited(what: Awaited) -> str:
    if isinstance(what, CollectiveKind):
        return f"for {what.value.replace('_', '-')}"
    return "for copies into buffers" if what is StallCause.COMMUNICATION else what.value.removeprefix("waits ")


def contention(result: ScenarioResult, rows: tuple[PolicyResult, ...]) -> str:
    """Return the stretch of a policy's copies by contention: `copies take 1.93 times as long as alone`.

    Of a pipeline its bubble.
    """
    if result.workload.as_captured:
        metrics = [row.metrics for row in rows]
        waits = bubble_seconds(metrics) / metrics[0].iteration_s
        return f"stages wait for each other {percent(waits)} of the time on average, the bubble"
    copies = [timed_copies(row.trace, result.server, row.gpu) for row in rows]
    if not any(copies):
        return "no map is copied"
    stretches = [f"{total_stretch(each):.2f}" for each in copies]
    low, high = min(stretches, key=float), max(stretches, key=float)
    return f"copies take {low if low == high else f'{low} to {high}'} times as long as alone"


def _contention_line(result: ScenarioResult, rows: tuple[PolicyResult, ...]) -> str:
    iteration, parts = rows[0].server_trace, [contention(result, rows)]
    assert iteration is not None
    if result.gradients is not None:
        exposed = format_seconds(max(map(_exposed_s, rows)))
        parts += [_waiting(iteration), f"no kernel hides {exposed} of exchanges"]
    elif result.workload.as_captured:
        parts.append(_exposed(result, rows))
    return f"{rows[0].policy}: {'; '.join(parts)}"


def _waiting(iteration: ServerTrace) -> str:
    waits = waits_s(iteration)
    longest = max(range(len(waits)), key=lambda gpu: sum(waits[gpu]))
    total_s = sum(waits[longest])
    if total_s < _NOTICED * iteration.iteration_s:
        return "all GPUs arrive at the exchanges of gradients together"
    found = exchanges(iteration)
    for_whom = max(range(len(waits)), key=lambda gpu: waits[longest][gpu])
    often = sum(each.last == for_whom for each in found)
    return (
        f"GPU {longest} waits longest before exchanges, {format_seconds(total_s)}, most of it for GPU {for_whom}, the "
        f"last to {often} of {len(found)}"
    )


def _exposed_s(row: PolicyResult) -> float:
    """Return how long exchanges stall the kernels of a GPU, updates included, or last beyond them."""
    waited_s = dict(row.metrics.stall_by_cause).get(StallCause.AGGREGATION, 0.0)
    ends_s = (span.end_s for span in row.trace.spans_on(Stream.COMMUNICATION))
    return waited_s + max(0.0, max(ends_s, default=0.0) - row.trace.spans_on(Stream.COMPUTE)[-1].end_s)


def without_plan(result: ScenarioResult) -> tuple[str, ...]:
    """Return a sentence for each policy that has no plan."""
    return tuple(f"no plan: {each.policy}: {each.reason}" for each in result.declined)
