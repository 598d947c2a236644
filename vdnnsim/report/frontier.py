"""Frontier of memory and time: its findings, table, page and folder of files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from vdnnsim.analysis.columns import Row
from vdnnsim.analysis.frontier import Frontier, FrontierPoint
from vdnnsim.analysis.results import Setup
from vdnnsim.dnn.samples import sample_of
from vdnnsim.files.messages import listed
from vdnnsim.hardware.server import Origin
from vdnnsim.report import markdown
from vdnnsim.report.caveats import capture_lines, glossary, kernel_times
from vdnnsim.report.certificates import LOOSE, class_text, gap_text
from vdnnsim.report.document import Bullets, Definitions, Heading, Note, Picture, Prose, plain_table, section
from vdnnsim.report.findings import caption, question_text, whose, workload_text
from vdnnsim.report.folder import QUESTION, Writer, Written, write_folder
from vdnnsim.report.result_table import csv_text
from vdnnsim.report.scale import byte_scale, percent, rate_text, time_scale
from vdnnsim.units import format_bytes, format_seconds

FRONTIER: Final = {
    "policy": "the planner, or a policy beside it",
    "capacity_bytes": "memory of the GPU, the framework's context included; of a policy that looks at no memory the "
    "least that it fits into",
    "iteration_s": "simulated time of an iteration, of several GPUs until the last is done",
    "bound_s": "lower bound of the schedules of the class `holds_for` in this memory; empty where none is proven",
    "gap_ratio": "iteration_s over bound_s, less 1",
    "holds_for": "the schedules for which the bound holds",
    "planned_for_bytes": "the capacity for which the plan was made: a plan for less memory is one for more",
    "offloaded_bytes": "bytes copied to the host in one iteration",
    "recomputed_layers": "layers whose forward runs again",
    "complete": "whether the search came to its end, and not only to its time limit",
}
"""Columns of `frontier.csv` and their meanings."""

_NOTICED: Final = 5e-4
_LITTLE: Final = 0.1

SHOWN: Final = ("memory", "time", "slower", "bound", "gap", "fastest other policy", "its time")
"""Columns of the printed table."""
_MEANT: Final = (
    "slower: than where nothing is offloaded; gap: how far a time is above its lower bound; a row holds up to the "
    "memory of the next"
)


def frontier_rows(frontier: Frontier) -> Iterator[Row]:
    """Yield the rows of `frontier.csv`: the planner by capacity, then each policy."""
    for each in frontier.points:
        plan, bound = each.plan, each.bound
        proven: Row = ("", "", "") if bound is None else (bound.seconds, each.gap or 0.0, bound.holds_for.value)
        done: Row = (plan.planned_for_bytes, plan.offloaded_bytes, plan.recomputed_layers, plan.complete)
        yield (frontier.planner, each.capacity_bytes, plan.iteration_s, *proven, *done)
    for policy in frontier.policies:
        for nbytes, seconds in policy.times:
            yield (policy.policy, nbytes, seconds, *("",) * (len(FRONTIER) - 3))


def shown_rows(frontier: Frontier) -> list[tuple[str, ...]]:
    """Return a row for each capacity from which on a time is another; its bound and gap are of the least memory."""
    times = [each.plan.iteration_s for each in frontier.points]
    memory = byte_scale(each.capacity_bytes for each in frontier.points)
    seconds = time_scale(times).with_digits(times, 4)
    rows: list[tuple[str, ...]] = []
    for each in frontier.points:
        best = frontier.best_policy(each.capacity_bytes)
        own = seconds.text(each.plan.iteration_s), percent(frontier.slower(each.plan.iteration_s))
        bound = ("", "") if each.bound is None else (seconds.text(each.bound.seconds), gap_text(each.gap or 0.0))
        other = ("none", "") if best is None else (best[0], seconds.text(best[1]))
        if not rows or (*own, *other) != (*rows[-1][1:3], *rows[-1][5:]) or each is frontier.points[-1]:
            rows.append((memory.text(each.capacity_bytes), *own, *bound, *other))
    return rows


def headline(asked: Setup, frontier: Frontier) -> str:
    """Return how much slower planner and best other policy are in less memory; no numbers for datasheet peaks."""
    what = workload_text(asked)
    if set(frontier.kernels.seconds) == {Origin.DATASHEET}:
        return f"{what}: time of an iteration by memory"
    point, roomy = shown_point(asked, frontier), frontier.points[-1]
    if point is roomy:
        return f"{what} needs no more than {format_bytes(roomy.capacity_bytes)}"
    best = frontier.best_policy(point.capacity_bytes)
    other = "" if best is None else f", {best[0]} {_slower(frontier.slower(best[1]))}"
    return (
        f"{what} in {format_bytes(point.capacity_bytes)} instead of {format_bytes(roomy.capacity_bytes)}: "
        f"{frontier.planner} {_slower(frontier.slower(point.plan.iteration_s))}{other}"
    )


def _slower(fraction: float) -> str:
    return f"{percent(fraction)} slower" if fraction >= _NOTICED else "no slower"


def proven(asked: Setup, frontier: Frontier) -> str:
    """Return the gap of the plan of the headline: `optimal: gap 0.3 %`; empty without a bound."""
    gap = shown_point(asked, frontier).gap
    return "" if gap is None else f"{frontier.planner}: gap {gap_text(gap)}"


def shown_point(asked: Setup, frontier: Frontier) -> FrontierPoint:
    """Return the point of the machine's own memory, else the least memory that is at most 10 % slower."""
    own = frontier.point_at(asked.server.gpu.memory_bytes)
    if own is not None and own is not frontier.points[-1]:
        return own
    return next(each for each in frontier.points if frontier.slower(each.plan.iteration_s) <= _LITTLE)


def findings(asked: Setup, frontier: Frontier) -> tuple[str, ...]:
    """Return findings at the machine's memory and at both ends, the gaps, and the policies left out."""
    point, least, roomy = shown_point(asked, frontier), frontier.points[0], frontier.points[-1]
    lines = [f"{headline(asked, frontier)}."]
    if point is not least and point is not roomy:
        lines.append(f"There {frontier.planner} takes {_taken(asked, point)}.")
    lines.append(
        f"{frontier.planner} needs at least {format_bytes(least.capacity_bytes)}, with {_taken(asked, least)}; "
        f"from {format_bytes(roomy.capacity_bytes)} on it offloads nothing, with {_taken(asked, roomy)}."
    )
    gaps = [each.gap for each in frontier.points if each.gap is not None]
    if gaps:
        classes = dict.fromkeys(class_text(each.bound.holds_for) for each in frontier.points if each.bound is not None)
        of_least, most, which, beside = least.gap or 0.0, max(gaps), "Every plan", ""
        if len(gaps) > 1 and max(gaps[1:]) <= _LITTLE < of_least:
            # It would hide how near the others are.
            more = frontier.points[1]
            faster = least.plan.iteration_s / more.plan.iteration_s
            most, which = max(gaps[1:]), "Every plan but that in the least memory"
            size = format_bytes(more.capacity_bytes)
            beside = (
                f"; that one is {gap_text(of_least)} above its own, and in {size} a plan is {faster:.1f} times as fast"
            )
        within = f"{which} is within {gap_text(most)} of its lower bound{beside}"
        lines.append(f"{within}; the bound holds for {' or '.join(classes)}.")
        if (of_roomy := roomy.gap or 0.0) > LOOSE:
            lines.append(
                f"The bound is loose, for it leaves out what the host and the exchange between ranks add: a plan that "
                f"offloads and recomputes nothing is {gap_text(of_roomy)} above it, too."
            )
    if not all(each.plan.complete for each in frontier.points):
        lines.append("The time limit ended the search for some of the plans.")
    others = [*(each.policy for each in frontier.policies), *(each.policy for each in frontier.declined)]
    asked_for = f"those of the scenario: {listed(others)}" if others else "none in the scenario; --policy names some"
    lines.append(f"Other policies are {asked_for}.")
    lines += [f"Not in the picture: {each.policy}: {each.reason}" for each in frontier.declined]
    return tuple(lines)


def _taken(asked: Setup, point: FrontierPoint) -> str:
    rate = rate_text(sample_of(asked.workload.graph), asked.workload.batch_size / point.plan.iteration_s)
    return f"{format_seconds(point.plan.iteration_s)} per iteration, {rate}{whose(asked.workload, 1)}"


MANIFEST, PAGE, TABLE, PICTURE = _FILES = ("frontier.json", "frontier.md", "frontier.csv", "frontier.png")
FRONTIER_WRITER: Final = Writer.of("frontier", _FILES, "format_version", "scenario", "frontier", version=2)


def write_frontier(scenario: Setup, frontier: Frontier, folder: Path) -> Written:
    """Write page, table, picture and manifest, replacing those of an earlier frontier."""
    # Importing matplotlib takes longer than most frontiers.
    from vdnnsim.report.plots.frontier import draw_frontier

    contents: dict[str, str | bytes] = {
        PAGE: _page_text(scenario, frontier),
        TABLE: csv_text(tuple(FRONTIER), frontier_rows(frontier)),
        PICTURE: draw_frontier(scenario, frontier, headline(scenario, frontier), proven(scenario, frontier)),
    }
    files = FRONTIER_WRITER.with_manifest(scenario.sources, _said(scenario, frontier), contents)
    return write_folder(folder, files, FRONTIER_WRITER)


def _page_text(scenario: Setup, frontier: Frontier) -> str:
    definitions = glossary([each.policy for each in frontier.policies], scenario.workload, of_speed=False)
    notes = (_MEANT, *definitions, *kernel_times(frontier.kernels), *capture_lines(scenario))
    sources = (
        "times are simulated; between two capacities the picture joins them",
        f"{MANIFEST}: versions, inputs with their hashes, every number",
        *(f"input {name}, SHA-256 {sha256}" for name, sha256 in scenario.sources),
    )
    return markdown.page(
        (
            Heading(f"{scenario.name}: time of an iteration by memory", 1),
            Prose(f"{caption(scenario)}."),
            Bullets(findings(scenario, frontier)),
            Picture(headline(scenario, frontier), PICTURE),
            plain_table(SHOWN, shown_rows(frontier), left=0),
            *(Note(f"{note}.") for note in notes),
            Heading(f"What do the columns of {TABLE} mean?"),
            Definitions(tuple(FRONTIER.items())),
            *section("Where do the numbers come from?", sources),
        )
    )


def _said(scenario: Setup, frontier: Frontier) -> dict[str, Any]:
    workload = scenario.workload
    return {
        QUESTION: question_text(scenario),
        "seed": None,  # nothing is random
        "scenario": {
            "name": scenario.name,
            "network": workload.graph.name,
            "batch_size": workload.batch_size,
            "precision": workload.precision.value,
            "optimizer": workload.optimizer.value,
            "mode": workload.mode.value,
            "hardware": scenario.server.name,
            "memory_bytes": scenario.server.gpu.memory_bytes,
            "memory_model": scenario.memory_model.value,
            "gpus": scenario.gpus,
        },
        "kernel_seconds": {found.value: seconds for found, seconds in frontier.kernels.seconds.items()},
        "frontier": [
            {name: None if value == "" else value for name, value in zip(FRONTIER, row, strict=True)}
            for row in frontier_rows(frontier)
        ],
        "declined": {each.policy: each.reason for each in frontier.declined},
    }
