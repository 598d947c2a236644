"""The largest batch, or the longest sequence, of each policy as a table."""

from dataclasses import replace
from itertools import zip_longest
from typing import Final

from vdnnsim.analysis.columns import cells
from vdnnsim.analysis.kernel_origins import joined_origins
from vdnnsim.cost.trust import PEAKS_TOO_LOW
from vdnnsim.dnn.samples import sample_of
from vdnnsim.planning.deadline import TimeLimit
from vdnnsim.report.caveats import capture_lines, glossary, kernel_times, remarks
from vdnnsim.report.document import plain_table, titled_table
from vdnnsim.report.findings import caption, whose
from vdnnsim.report.result_table import ResultTable
from vdnnsim.report.scale import per_second, percent, rate_cells
from vdnnsim.scenario.read import LARGEST_BATCH
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.edge import BEYOND, TRIED_BEYOND
from vdnnsim.study.largest_batch import LargestBatch, Simulators, largest_sizes, surely_largest
from vdnnsim.study.longest_sequence import longest_sequences

LARGEST: Final = (
    *("network", "policy", "batch_size", "samples_per_s", "layer", "phase", "refusal", "part_size"),
    "sure_batch_size",
)
"""Columns of the CSV."""
_PUNCTUAL_S: Final = 1.0
"""Delays up to this are not reported."""
_LONGER: Final = 4
"""Limit to try where one was too short, over that."""
_SHARE: Final = 16
"""Fraction of the limit that a policy with its own search gets for each batch."""


def largest_table(asked: Scenario, limit: TimeLimit, has_all: str, *, longest: bool = False) -> ResultTable:
    """Search for the largest batch that fits under each policy of a scenario, or for the longest sequence.

    Args:
        asked: the scenario; its batch, or its sequence, is where the search begins.
        limit: of all searches together, and once more of those that leave memory free, of a captured model.
        has_all: where columns are that do not fit a terminal.
        longest: whether to search for the longest sequence at the batch.

    Raises:
        StudyError: the workload has no sequences, and the longest is asked for.
        PolicyError: no policy has a plan.
    """
    asked = asked.limited(str(replace(limit, seconds=limit.seconds / _SHARE / len(asked.policies))))
    sample = sample_of(asked.workload.graph)
    part = "micro-batch" if asked.workload.batch_size > asked.workload.part_size else "batch"
    what, more = ("longest sequence", "a longer one") if longest else (f"largest {part}", f"one {sample.name} more")
    columns = (*LARGEST[:-1], "tokens", "sure_tokens") if longest else LARGEST
    rows, shown = [], []
    if longest:
        found, surely, made = longest_sequences(asked, limit)
    else:
        simulators, made = Simulators.of_batches(asked), ""
        found = largest_sizes(simulators, limit.begin())
        surely = surely_largest(simulators, found, limit.begin()) if asked.captured is not None else ()
    rates = rate_cells([each.samples_per_s for each in found])
    for each, rate, sure in zip_longest(found, rates, surely):
        refusal = each.no_plan or ("" if each.refusal is None else each.refusal.explain())
        if each.untried is not None:
            refusal = _nothing(each, limit, sample.names)
        rate_cell = "" if each.samples_per_s is None else each.samples_per_s
        part_size = "" if each.part_size is None else each.part_size
        stated = (asked.workload.graph.name, each.policy, each.batch_size, rate_cell, *each.stopped_by, refusal)
        sure_size = "" if sure is None or sure.no_plan else sure.size
        sizes = (each.size, sure_size) if longest else (sure_size,)
        named = dict(zip(columns, (*stated, part_size, *sizes), strict=True))
        rows.append(cells(columns, named, None))
        beside = () if sure is None else (_batch(sure),)
        shown.append((each.policy, _batch(each), *beside, rate, refusal or _nothing(each, limit, sample.names)))
    share = percent(PEAKS_TOO_LOW)
    left = [f"with {share} left"] * bool(surely)
    unit = per_second(sample) + whose(asked.workload, 1)
    header = ("policy", what, *left, unit, f"what stops {more}")
    table = plain_table(header, shown, has_all)
    findings = *kernel_times(joined_origins(each.kernels for each in found)), *capture_lines(asked)
    notes = *remarks(asked.workload), *glossary((each.policy for each in found), asked.workload, of_speed=False)
    if asked.captured is not None:
        margin = f"`{what}` fits if simulated peaks are right; they may be {share} too low"
        if surely:
            margin += f": `{left[0]}` is the {what.split()[0]} found that `run` calls fitting"
        tried = "" if longest else f"{TRIED_BEYOND} up to {BEYOND:g} times as large were tried, and "
        margin += f"; reserved memory may shrink as {'sequences' if longest else 'batches'} grow: {tried}others may fit"
        findings = *findings, margin
    size = f"batch {asked.workload.batch_size}, longest sequence" if longest else f"largest batch of {sample.names}"
    answer = titled_table(caption(asked, size), table, notes, (*findings, *filter(None, [made])))
    return ResultTable(columns, rows, answer)


def _batch(found: LargestBatch) -> str:
    if found.no_plan:
        return "no plan"
    if found.untried is not None and found.part_size is None:
        return f"{found.size} or more" if found.size else "not known"
    if found.part_size is not None:
        return "any"
    return str(found.size) if found.size else "does not fit"


def _nothing(found: LargestBatch, limit: TimeLimit, samples: str) -> str:
    if found.untried is not None:
        largest = found.size if found.part_size is None else found.part_size
        ended = f"the search ended after its part of {limit}"
        if found.late_s > _PUNCTUAL_S:
            ended += f", {found.late_s:.0f} s late, for this policy does not look at its deadline while it plans"
        longer = replace(limit, seconds=_LONGER * limit.seconds)
        short = f", {found.untried} did not" if found.untried <= LARGEST_BATCH else ""
        goes_on = f"with a longer limit, as `--time-limit '{longer}'`, it goes on"
        return f"not known: {ended}; {largest} fitted{short}; {goes_on}"
    if found.part_size is None:
        return "nothing: no more may be asked for"
    return f"nothing: it runs in parts of {found.part_size} {samples} at most, as fast as one of them"
