"""The answer of a captured model that does not fit: everything that was tried, ranked, and how to do the best of it."""

from collections.abc import Iterator, Sequence
from typing import Final

from vdnnsim.analysis.answer import Change, Way, limit_bytes
from vdnnsim.analysis.results import PolicyResult, ScenarioResult, Shortage
from vdnnsim.cost.trust import PEAKS_TOO_LOW
from vdnnsim.dnn.layers import LayerKind
from vdnnsim.dnn.samples import sample_of
from vdnnsim.files.messages import listed
from vdnnsim.plans.host_memory import Pool
from vdnnsim.report.document import Block, Bullets, Code, Heading, Prose, plain_table
from vdnnsim.report.findings import TOO_LOW
from vdnnsim.report.scale import percent, rate_cells
from vdnnsim.report.tables.changed_loops import how_to
from vdnnsim.report.tables.training_script import calls_script, script_begin, step_of
from vdnnsim.units import format_bytes, format_seconds

_HEADER: Final = ("", "what was tried", "fits", "time a step", "rate", "process", "left", "results", "why not")
_LEFT_OUT_FIRST: Final = ("rate", "left", "results")
_FOLDED: Final = ("fits", "time a step", "process", "results", "why not")
"""What decides."""
_MOST: Final = 3
"""Ways that are shown in full, the best."""


def first_line(result: ScenarioResult) -> str:
    """Return the answer where nothing of what was asked fits: what is needed, and the best that fits."""
    row, ways, policies = result.subject, result.answer.ways, len(result.slowest)
    which = row.policy if policies == 1 else f"{row.policy}, the least of {policies} policies,"
    held, capacity = format_bytes(result.needed_bytes(row)), format_bytes(result.server.gpu.memory_bytes)
    needs = f"Does not fit into {capacity}: {which} needs {held}"
    if row.shortage is Shortage.GAPS:
        needs += f", of which {format_bytes(row.metrics.allocated_bytes)} are allocated"
    elif row.shortage is Shortage.HOST and row.refusal is not None:
        needs += f", and more than the {format_bytes(row.refusal.capacity_bytes)} of {row.refusal.pool.value}"
    if (best := result.answer.best) is not None:
        fits = "Fits" if best.fits else "Just fits"
        numbers = f"{format_seconds(best.iteration_s)} a step, {format_bytes(best.held_bytes)}"
        return f"{needs}. {fits} with {_title(result, best)}: {numbers}."
    card = next((f"; {way.hardware} is a card that holds it" for way in ways if way.fits and not way.is_on_card), "")
    so_far = " so far" if any(way.untried for way in ways) else ""
    return f"{needs}. Nothing that was tried{so_far} fits{card}."


def answer_table(result: ScenarioResult, has_all: str = "run.json has all") -> tuple[Block, ...]:
    """Return heading, table and commands; nothing where nothing was tried or is worth showing."""
    worth_showing = _worth_showing(result)
    if not worth_showing:
        return ()
    ways = _with_row(worth_showing)
    untried = len(worth_showing) - len(ways)
    rates = rate_cells([way.samples_per_s or None for way in ways])
    rows = [_cells(result, rank, way, rate) for rank, (way, rate) in enumerate(zip(ways, rates, strict=True), start=1)]
    can_be_done = ((rank, way) for rank, way in enumerate(ways, start=1) if way.fits or way.is_tight)
    best = [(rank, way) for rank, way in can_be_done if way.is_on_card][:_MOST]
    lines = [(f"{rank}. {_title(result, way)}:", how_to(result, way)) for rank, way in best]
    if any(calls_script(step_of(result), text) for _, text in lines):
        begin = "Lines of Python below follow these; replace what is marked `# yours`:"
        lines.insert(0, (begin, script_begin(result)))
    shown = [block for title, text in lines for block in (Prose(title), Code(text))]
    header = [f"{sample_of(result.workload.graph).names} per s" if each == "rate" else each for each in _HEADER]
    left_out = [header[_HEADER.index(each)] for each in _LEFT_OUT_FIRST]
    tables = [plain_table(header, rows, has_all, left_out, folded=_FOLDED)] if rows else []
    more = f"{untried} more ways were" if untried > 1 else "1 more way was"
    them = "them" if untried > 1 else "it"
    rest = [Prose(f"{more} not tried; the same command with `--time-limit '60 s'` tries {them}.")] if untried else []
    surely = "What would be faster?" if result.fits_surely else "What would surely fit?"
    heading = Heading("What would make it fit?" if result.leader is None else surely)
    return heading, *tables, *rest, *shown


def answer_notes(result: ScenarioResult) -> tuple[Block, ...]:
    """Return what the table rests on and what binds, or in a line that nothing faster was found or tried."""
    ways, sure, policies = _worth_showing(result), result.surely_fastest, [row.policy for row in result.slowest]
    if result.answer.ways:
        others = len(result.answer.ways) - len(ways)
        slower = f"What else was tried ({others}) does not fit or is slower than {sure.policy}." if sure else ""
        if not ways:
            return (Bullets((f"Nothing faster was found. {slower}",)),)
        rest = [slower] if others else []
        return (Bullets((*rest, *result.answer.notes, *_sentences(result, _with_row(ways)))),)
    plain = next((each for each in policies if each.startswith("pytorch")), "")
    if result.captured is None or sure is None or policies == [plain] or (not plain and _is_fastest(sure)):
        return ()
    why = f"{plain} fits, and recomputes and offloads nothing" if plain else "pytorch was not asked about"
    return (Bullets((f"Nothing faster was tried: {why}.",)),)


def _is_fastest(row: PolicyResult) -> bool:
    """Whether a policy is as fast as with unlimited memory, as it is printed."""
    return percent(min(1.0, row.performance_ratio)) == percent(1.0)


def _worth_showing(result: ScenarioResult) -> tuple[Way, ...]:
    """Return the ways of the table; where a policy surely fits the faster ones."""
    ways, sure = result.answer.ranked, result.surely_fastest
    if sure is None:
        return ways
    least = sure.metrics.samples_per_s
    return tuple(way for way in ways if way.untried or ((way.fits or way.is_tight) and way.samples_per_s >= least))


def _with_row(ways: Sequence[Way]) -> list[Way]:
    """Return the ways that were tried, if only in a part of their time."""
    return [way for way in ways if not way.untried or way.cut_short]


def sentences(result: ScenarioResult) -> tuple[str, ...]:
    """Return the answer in sentences, one for each thing that was tried, best first."""
    found = []
    for way in result.answer.ranked:
        numbers, why = f"{format_bytes(way.held_bytes)}, {format_seconds(way.iteration_s)} a step", _why_not(way)
        parts = *((numbers,) if way.iteration_s else ()), *((why,) if why else ())
        found.append(f"{_title(result, way)}: {'; '.join(parts)}")
    return (*found, *result.answer.notes)


def progress_row(way: Way) -> str:
    """Return a row of the table while it fills."""
    parts = f" in {way.rounds} micro-batches" if way.change is Change.MICRO_BATCHES else ""
    loop = f", {way.loop}" if way.loop.changes else ""
    what = f"{way.hardware}: {way.policy}{loop}, batch {way.batch_size * way.rounds}{parts}"
    numbers = f"{format_seconds(way.iteration_s):>8} {format_bytes(way.held_bytes):>9}" if way.iteration_s else " " * 18
    return f"{what:<60} {numbers}  {'fits' if way.fits else _why_not(way)}"


def _title(result: ScenarioResult, way: Way) -> str:
    beside = ["expandable segments"] * way.expandable + [str(way.loop)] * bool(way.loop.changes)
    what = " with ".join((_what(result, way), *([listed(beside)] if beside else ())))
    return f"{what}{',' if beside else ''} by apply" if way.change is Change.POLICY and way.is_applied else what


def _what(result: ScenarioResult, way: Way) -> str:
    sample = sample_of(result.workload.graph)
    names = sample.name if way.batch_size == 1 else sample.names
    match way.change:
        case Change.MICRO_BATCHES:
            return f"{way.rounds} micro-batches of {way.batch_size} {names} under {way.policy}"
        case Change.BATCH:
            return f"a batch of {way.batch_size} {names} under {way.policy}"
        case Change.SEQUENCE:
            return f"sequences of {way.tokens} tokens under {way.policy}"
        case Change.CARD:
            return f"{way.hardware} under {way.policy}"
        case Change.POLICY:
            return way.policy


def _results(result: ScenarioResult, way: Way) -> str:
    """Return how the results of a step differ; empty where the same kernels compute the same."""
    if way.has_fewer_pairs:
        return "fewer pairs"
    if way.change is Change.MICRO_BATCHES and _normalizes(result):
        return "normalized in parts" + ("" if way.loop.is_exact else ", rounded")
    if way.change in (Change.BATCH, Change.SEQUENCE):
        return f"of another {way.change.value}"
    if not way.loop.is_exact:
        return "rounded"
    is_alike = way.change is Change.POLICY and way.loop.sums_alike
    return "" if is_alike else "last bits"


def _normalizes(result: ScenarioResult) -> bool:
    return any(each.kind is LayerKind.BN for each in result.workload.graph.layers)


def _cells(result: ScenarioResult, rank: int, way: Way, rate: str) -> tuple[str, ...]:
    fits = "yes" if way.fits else "just" if way.is_tight else "?" if way.untried else "no"
    if not way.iteration_s:
        return str(rank), _title(result, way), fits, "", "", "", "", "", _why_not(way)
    left = format_bytes(way.left_bytes) if way.left_bytes >= 0 and not way.in_pieces else ""
    numbers = format_seconds(way.iteration_s), rate, format_bytes(way.held_bytes), left
    return str(rank), _title(result, way), fits, *numbers, _results(result, way), _why_not(way)


def _why_not(way: Way) -> str:
    too_much = f"{format_bytes(-way.left_bytes)} too much"
    if way.reason or way.fits:
        # More of what the reason names would not be enough.
        is_too_much = way.iteration_s > 0 and way.left_bytes < 0
        cut = "search cut short" * (way.cut_short and not way.untried)
        return "; ".join(filter(None, (too_much * is_too_much, way.reason, cut)))
    if way.in_pieces:
        return "fits but for gaps between blocks"
    if way.is_tight:
        return TOO_LOW
    return too_much


def _sentences(result: ScenarioResult, ways: Sequence[Way]) -> Iterator[str]:
    share = percent(PEAKS_TOO_LOW)
    yield (
        f"What fits leaves {share} of the memory free, since one measured peak in twenty was above the simulated one "
        "by more than that."
    )
    if cut := [way.policy for way in ways if way.untried and way.cut_short]:
        yield (
            f"{listed(list(dict.fromkeys(cut)))}: searched with less effort here than by `vdnnsim apply` and "
            "`vdnnsim.plan`, which may find a faster plan."
        )
    if any(way.in_pieces for way in ways):
        yield (
            "Fits but for gaps between blocks: no free piece is large enough; under "
            "`PYTORCH_ALLOC_CONF=expandable_segments:True` segments grow, and fewer pieces are left."
        )
    rounding = [each for way in ways if not way.loop.is_exact for each in (way.loop.precision or way.loop.optimizer,)]
    if rounding:
        names = list(dict.fromkeys(map(str, rounding)))
        verb = "computes or keeps" if len(names) == 1 else "compute or keep"
        yield f"`rounded`: {listed(names)} {verb} numbers of other widths."
    if any(way.iteration_s and _results(result, way) == "last bits" for way in ways):
        yield "`last bits`: the same is computed, with sums in another order or by other kernels."
    if any(way.is_applied for way in ways):
        yield (
            f"`by apply`: run by `vdnnsim apply`, which reserves {format_bytes(limit_bytes(result.server.gpu))} "
            "at once, for all blocks and the gaps between them; `process` counts the blocks alone. `vdnnsim run "
            "--policy` replays a plain loop."
        )
    if any(Pool.HOST.value in way.reason or Pool.PINNED.value in way.reason for way in ways):
        yield (
            "Host memory is as the machine's profile says: `vdnnsim whatif` with `--set host.memory=128GiB` replays "
            "policies with yours, and `--hardware mine.yaml` all commands, a file with `name: mine`, `extends: "
            f"{result.server.name}` and `host: {{memory: {{value: 128 GiB, origin: datasheet, source: mine}}}}`."
        )
    if any(way.has_fewer_pairs for way in ways):
        yield (
            "`fewer pairs`: samples of a batch are compared with one another, as in a contrastive loss; those of a "
            "micro-batch are compared among themselves alone, so that gradients are other ones."
        )
    elif any(way.change is Change.MICRO_BATCHES for way in ways):
        yield "Micro-batches: gradients add up to those of the whole batch."
    if any(way.change is Change.MICRO_BATCHES for way in ways) and _normalizes(result):
        yield "`normalized in parts`: batch normalization sees a micro-batch."
    if any(way.change is Change.CARD for way in ways):
        yield (
            "Another card: the step as captured for this one. A run with `--hardware` of that card captures what "
            "PyTorch chooses there, as other kernels of attention, which may reserve some percent more or less."
        )
    if any(way.is_applied for way in ways):
        yield (
            "`vdnnsim apply` runs a policy of this table on a script that is not changed, `vdnnsim.plan` in a loop: "
            "`plan = vdnnsim.plan(model, inputs, policy=...)`, and `with plan.apply(model):` around forward and "
            "backward."
        )
