"""Ranking of machines: its table, findings and folder of files."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from vdnnsim.analysis.columns import Row, Value
from vdnnsim.analysis.machines import Offer, Order, Ranking, Unfit
from vdnnsim.analysis.results import Setup
from vdnnsim.cost.trust import Basis
from vdnnsim.dnn.samples import sample_of
from vdnnsim.dnn.workload import Workload
from vdnnsim.files.messages import listed
from vdnnsim.report import markdown
from vdnnsim.report.caveats import glossary, remarks
from vdnnsim.report.document import Heading, Prose, plain_table, titled_table
from vdnnsim.report.findings import question_text, shared, whose, workload_text
from vdnnsim.report.folder import QUESTION, Writer, Written, write_folder
from vdnnsim.report.result_table import ResultTable
from vdnnsim.report.scale import per_second, rate_cells
from vdnnsim.units import format_bytes, format_seconds

MACHINES: Final[Mapping[str, str]] = {
    "rank": "place in the order; empty where it does not fit or is not decided",
    "told_apart": "whether it and the row above differ by more than the errors expected of both: yes, no or not known",
    "machine": "the profile, several where all of it is the same for them",
    "gpu": "its GPU",
    "policy": "the fastest of the policies that fit",
    "iteration_s": "seconds of a step; of several GPUs until the last is done",
    "server_samples_per_s": "of all GPUs together",
    "allocated_bytes": "allocated: peak of the GPU memory in live buffers",
    "reserved_bytes": "reserved: what the allocator takes from the device, gaps included",
    "process_bytes": "process: what nvidia-smi shows, with the context of CUDA",
    "memory_bytes": "of one GPU",
    "cost": "of an epoch or of 1000 steps, as `cost_of` says; empty where no price is given",
    "cost_of": "currency, and what the cost is of",
    "basis": "what kernel times rest on: measured, fitted, carried over from another card, datasheet",
    "expected_error_ratio": "mean absolute error of steps that nothing was fitted to; empty where nobody knows",
    "checked_rows": "measured steps of this card, mode, precision, kind of network and execution that it was found on",
    "reason": "why it does not fit, what was not tried in time, or what is to be known of its kernel times",
}
"""Columns of `machines.csv` and their meanings."""

_MEMORY: Final = ("allocated", "reserved", "process", "of")
_FOLDED: Final = ("fits with", *_MEMORY[2:], "expected error")
"""Below a row where they do not fit beside it."""
_ORDER: Final = {Order.CERTAIN: "yes", Order.WITHIN_ERROR: "no", Order.UNKNOWN: "not known"}
_MARKS: Final = {
    Order.WITHIN_ERROR: "~ differs from the row above by less than the errors expected of both",
    Order.UNKNOWN: "? the error of this row or of the one above is not known, so their order is uncertain",
}


def machine_rows(ranking: Ranking) -> tuple[Row, ...]:
    rows: list[Row] = []
    for rank, (offer, order) in enumerate(zip(ranking.offers, ranking.order, strict=True), start=1):
        trust = offer.trust
        named: dict[str, Value] = {
            "rank": rank,
            "told_apart": _ORDER[order],
            "machine": offer.name,
            "server_samples_per_s": offer.samples_per_s,
            "allocated_bytes": offer.asked_bytes,
            "reserved_bytes": offer.reserved_bytes,
            "process_bytes": offer.held_bytes,
            "cost": "" if offer.cost is None else offer.cost,
            "cost_of": "" if offer.cost is None else ranking.unit,
            "basis": trust.basis.value,
            "expected_error_ratio": "" if trust.error is None else trust.error,
            "checked_rows": trust.rows,
            "reason": "; ".join(offer.notes),
        }
        rows.append(tuple(named[name] if name in named else getattr(offer, name) for name in MACHINES))
    for each in ranking.unfit:
        unfit: dict[str, Value] = {"machine": each.name, "reason": each.reason}
        rows.append(tuple(unfit.get(name, "") for name in MACHINES))
    return tuple(rows)


def shown(ranking: Ranking, workload: Workload, gpus: int) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return header and rows of the printed table."""
    costs, rates = bool(ranking.currency), rate_cells([each.samples_per_s for each in ranking.offers])
    unit = per_second(sample_of(workload.graph)) + whose(workload, gpus)
    header = ("rank", "machine", "fits with", *_MEMORY, "time", unit)
    rows = []
    for rank, (offer, order, rate) in enumerate(zip(ranking.offers, ranking.order, rates, strict=True), start=1):
        memory = map(format_bytes, (offer.asked_bytes, offer.reserved_bytes, offer.held_bytes, offer.memory_bytes))
        cost = () if not costs else ("" if offer.cost is None else f"{offer.cost:.3g}",)
        trusted = offer.trust.resting, offer.trust.expected
        found = offer.name, offer.policy, *memory, format_seconds(offer.iteration_s), rate
        rows.append((f"{order.value}{rank}", *found, *cost, *trusted))
    return (*header, *((ranking.unit,) if costs else ()), "kernel times", "expected error"), rows


def progress_row(found: Offer | Unfit) -> str:
    """Return what was found on one machine, while others are being tried."""
    if isinstance(found, Unfit):
        return f"{found.name}: {'not decided' if found.undecided else 'does not fit'}"
    held = f"{format_bytes(found.held_bytes)} of {format_bytes(found.memory_bytes)}"
    return f"{found.name}: {found.policy}, {format_seconds(found.iteration_s)}, {held}"


def marks(ranking: Ranking) -> list[str]:
    """Return the meanings of the marks that occur."""
    return [text for order, text in _MARKS.items() if order in ranking.order]


def title(ranking: Ranking, what: str) -> str:
    """Return the title for a workload such as `vgg16 (64)`."""
    total = sum(len(each.names) for each in ranking.offers) + len(ranking.unfit)
    undecided, slow = (sum(each.undecided and each.is_slow is slow for each in ranking.unfit) for slow in (False, True))
    open_ones = (f", {undecided} not decided in time" if undecided else "") + (f", {slow} not tried" if slow else "")
    if not ranking.offers:
        if total == 1:
            name = ranking.unfit[0].name
            return (
                f"{name}: not decided in time whether it holds {what}" if undecided else f"{name} does not hold {what}"
            )
        return f"None of {total} machines holds {what}{open_ones}"
    held, first = total - len(ranking.unfit), ranking.offers[0]
    best = format_seconds(first.iteration_s) if first.cost is None else f"{first.cost:.3g} {ranking.unit}"
    rests = " by its datasheet's peaks" if first.trust.basis is Basis.DATASHEET else ""
    together = len(ranking.rivals)
    and_more = f"; {together} more may be as good" if together else ""
    return f"{held} of {total} machines hold {what}{open_ones}: {first.name} is first{rests}, {best}{and_more}"


def findings(ranking: Ranking) -> list[str]:
    lines = []
    if rivals := ranking.rivals:
        first = ranking.offers[0].name
        lines.append(f"{first} and {listed(rivals)} differ by less than their expected errors; any may be first")
    counts = Counter(each.trust.basis for each in ranking.offers)
    if counts:
        said = ", ".join(f"{counts[basis]} {basis.value}" for basis in Basis if counts[basis])
        unequal = "; rows of different origin are ranked together, so compare their expected errors"
        lines.append(f"Kernel times: {said}{unequal if len(counts) > 1 else ''}")
    notes = shared((note, offer.name) for offer in ranking.offers for note in offer.notes)
    lines += [f"{note}: {', '.join(names)}" for note, names in notes.items()]
    reasons = shared((each.reason, each.name) for each in ranking.unfit if not each.undecided)
    lines += [f"does not fit: {', '.join(names)}: {reason}" for reason, names in reasons.items()]
    slow = shared((each.reason, each.name) for each in ranking.unfit if each.is_slow)
    lines += [f"not tried without a longer --time-limit: {', '.join(names)}: {why}" for why, names in slow.items()]
    if undecided := [each.name for each in ranking.unfit if each.undecided and not each.is_slow]:
        lines.append(f"not decided, try a longer --time-limit: {', '.join(undecided)}")
    return lines


MACHINES_WRITER: Final = Writer.of(
    "ranking of machines",
    ("machines.json", "machines.md", "machines.csv", "machines.png"),
    *("format_version", "machines", "files"),
)
"""A run writes none of its files, so both can share a folder."""


def question(scenario: Setup) -> str:
    workload = scenario.workload
    sample = sample_of(workload.graph)
    length = f", {sample.names}{sample.length}" if sample.length else ""
    each = f" each on {scenario.gpus} GPUs" if scenario.gpus > 1 else ""
    return (
        f"{workload_text(scenario)}{length}, {workload.precision.value}, {workload.mode.value}{each} "
        f"({scenario.memory_model.value} memory model)"
    )


def machines_table(scenario: Setup, ranking: Ranking, has_all: str) -> ResultTable:
    """Return a ranking as a table; `has_all` says where columns are that do not fit a terminal."""
    header, rows = shown(ranking, scenario.workload, scenario.gpus)
    table = plain_table(
        header, rows, has_all, (*_MEMORY[:2], header[-1], *reversed(_MEMORY[2:]), "fits with"), folded=_FOLDED
    )
    said = (f"{title(ranking, workload_text(scenario))}.", *findings(ranking))
    notes = [
        *remarks(scenario.workload),
        *glossary(ranking.policies, scenario.workload, of_speed=False),
        *marks(ranking),
    ]
    return ResultTable(tuple(MACHINES), machine_rows(ranking), titled_table(question(scenario), table, notes, said))


def write_machines(scenario: Setup, ranking: Ranking, sources: tuple[tuple[str, str], ...], folder: Path) -> Written:
    """Write the files of a ranking, replacing an earlier one; `sources` has name and SHA-256 of each input."""
    from vdnnsim.report.plots.machines import draw_machines

    asked = question(scenario)
    named = [row[list(MACHINES).index("machine")] for row in machine_rows(ranking)]
    said = {QUESTION: question_text(scenario, asked), "scenario": scenario.name, "policies": list(ranking.policies)}
    table, titled = machines_table(scenario, ranking, ""), title(ranking, workload_text(scenario))
    tried = Prose(f"{asked}; tried: {', '.join(ranking.policies)}.")
    heading = Heading(f"Which machine for {scenario.name}?", 1), tried
    pictures = ((titled, draw_machines(ranking, titled, asked)),) if ranking.offers else ()
    contents = markdown.table_files(MACHINES_WRITER.files, heading, pictures, table, MACHINES)
    return write_folder(
        folder, MACHINES_WRITER.with_manifest(sources, {**said, "machines": named}, contents), MACHINES_WRITER
    )
