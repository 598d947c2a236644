"""The command `max-batch`."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from vdnnsim.cli.model import POLICY, asked_for, takes_model
from vdnnsim.cli.options import POLICY_MODULE, SCENARIO, limited, parse_time_limit, policies_with, prints_table
from vdnnsim.cli.output import Output

if TYPE_CHECKING:
    from vdnnsim.study.largest_batch import LargestBatch

LARGEST: Final = ("network", "policy", "batch_size", "images_per_s", "layer", "phase", "refusal", "part_size")
"""Columns of the CSV."""
_LIMIT: Final = "18 s"
_PUNCTUAL_S: Final = 1.0
"""What is no later than that is not worth a word."""
_SHARE: Final = 16
"""Of the limit one such part is that of a policy that searches by itself, for each batch."""


@click.command(name="max-batch")
@SCENARIO
@takes_model
@POLICY
@click.option(
    "--time-limit",
    metavar="TIME",
    default=_LIMIT,
    show_default=True,
    help="End the search after TIME of the processor, or as `20 s wall`.",
)
@prints_table
@POLICY_MODULE
def max_batch(
    scenario: Path | None,
    policies: Sequence[str],
    time_limit: str,
    output: Output,
    policy_modules: Sequence[str],
    **words: object,
) -> None:
    """Find the largest batch that fits, and what stops one more.

    Under each policy; the batch size of SCENARIO, or of --model, is only where the search begins. Both batch and images
    per second are those of one GPU.
    """
    from vdnnsim.analysis.columns import Value, cells
    from vdnnsim.analysis.kernel_origins import joined_origins
    from vdnnsim.cli.progress import SearchLine
    from vdnnsim.dnn.samples import sample_of
    from vdnnsim.report.caveats import capture_lines, glossary, kernel_times, remarks
    from vdnnsim.report.document import plain_table, titled_table
    from vdnnsim.report.findings import caption
    from vdnnsim.report.result_table import ResultTable
    from vdnnsim.report.scale import per_second, rate_cells
    from vdnnsim.study.largest_batch import largest_batches

    limit = parse_time_limit(time_limit)
    asked = asked_for(scenario, words, policies_with(policy_modules), policies).scenario
    if any(hasattr(each, "time_limit") for each in asked.policies):
        asked = limited(asked, str(replace(limit, seconds=limit.seconds / _SHARE / len(asked.policies))))
    sample = sample_of(asked.workload.graph)
    rows, shown = [], []
    with SearchLine() as line:
        line.tell("largest batch of each policy")
        found = largest_batches(asked, limit.begin())
    for each, rate in zip(found, rate_cells([each.images_per_s for each in found]), strict=True):
        refusal = each.no_plan or ("" if each.refusal is None else each.refusal.explain())
        if each.untried is not None:
            refusal = _nothing(each, time_limit, sample.names)
        layer, phase = each.stopped_by
        stated: dict[str, Value] = {
            "network": asked.workload.graph.name,
            "policy": each.policy,
            "batch_size": each.batch_size,
            "images_per_s": "" if each.images_per_s is None else each.images_per_s,
            "layer": layer,
            "phase": phase,
            "refusal": refusal,
            "part_size": "" if each.part_size is None else each.part_size,
        }
        rows.append(cells(LARGEST, stated, None))
        shown.append((each.policy, _batch(each), rate, refusal or _nothing(each, time_limit, sample.names)))
    header = ("policy", "largest batch", per_second(sample), f"what stops one {sample.name} more")
    table = plain_table(header, shown, output.has_all)
    findings = *kernel_times(joined_origins(each.kernels for each in found)), *capture_lines(asked.captured)
    notes = *remarks(asked.workload), *glossary((each.policy for each in found), of_speed=False)
    answer = titled_table(caption(asked, f"largest batch of {sample.names}"), table, notes, findings)
    output.show(ResultTable(LARGEST, rows, answer))


def _batch(found: "LargestBatch") -> str:
    if found.no_plan:
        return "no plan"
    if found.untried is not None and found.part_size is None:
        return f"{found.batch_size} or more" if found.batch_size else "not known"
    if found.part_size is not None:
        return "any"
    return str(found.batch_size) if found.batch_size else "does not fit"


def _nothing(found: "LargestBatch", time_limit: str, samples: str) -> str:
    from vdnnsim.scenario.read import LARGEST_BATCH

    if found.untried is not None:
        largest = found.batch_size if found.part_size is None else found.part_size
        ended = f"the search ended after its part of {time_limit}"
        if found.late_s > _PUNCTUAL_S:
            ended += f", {found.late_s:.0f} s late, for this policy does not look at its deadline while it plans"
        short = f", {found.untried} did not" if found.untried <= LARGEST_BATCH else ""
        return f"not known: {ended}; {largest} fitted{short}; a longer --time-limit tells"
    if found.part_size is None:
        return "nothing: a scenario may ask for no more"
    return f"nothing: it runs in parts of {found.part_size} {samples} at most, as fast as one of them"
