"""Commands that search: `max-batch`, `frontier` and `machines`."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from vdnnsim.cli.model_options import describes_model
from vdnnsim.cli.options import (
    HARDWARE,
    POLICIES,
    POLICY_MODULE,
    TIME_LIMIT,
    FilePath,
    NamedFile,
    limited,
    out_option,
    parse_time_limit,
    policies_with,
    prints_table,
)
from vdnnsim.cli.output import Output, report_folder
from vdnnsim.cli.scenario_input import POLICY, ScenarioInput, asks_scenario, model_input, refuse_mixture
from vdnnsim.errors import InputError
from vdnnsim.files.packaged import SCENARIOS

if TYPE_CHECKING:
    from vdnnsim.analysis.machines import Offer, Unfit
    from vdnnsim.hardware.profile import Profile
    from vdnnsim.policies.interface import Policy
    from vdnnsim.policies.registry import PolicyTypes
    from vdnnsim.scenario.scenario import Scenario

_PLANNER: Final = "optimal"
_CAPACITIES: Final = (20, 8)
"""Of `frontier`; a plan for a captured model takes some ten seconds."""
_OF_CAPTURED: Final = "25 s"
"""Limit of `machines` for a captured model."""


@click.command(name="max-batch")
@POLICY
@click.option(
    "--time-limit",
    metavar="TIME",
    default="18 s",
    show_default=True,
    help="End the search after TIME of the processor, or as `20 s wall`.",
)
@click.option("--longest", is_flag=True, help="Find the longest sequence at the batch, in steps of 64 tokens, instead.")
@prints_table
@asks_scenario
def max_batch(given: ScenarioInput, time_limit: str, output: Output, *, longest: bool) -> None:
    """Find the largest batch that fits, or the longest sequence, and what stops one more.

    It does so for each policy. The search begins at the batch size of SCENARIO or of --model, with --longest at its
    tokens. Batch size and images per second are those of one GPU.
    """
    from vdnnsim.report.progress import SearchLine
    from vdnnsim.study.largest_table import largest_table

    limit = parse_time_limit(time_limit)
    with SearchLine() as line:
        line.show(f"{'longest sequence' if longest else 'largest batch'} of each policy")
        found = largest_table(given.scenario, limit, output.has_all, longest=longest)
    output.show(found)


@click.command()
@POLICY
@click.option(
    "--capacities",
    metavar="N",
    type=click.IntRange(3, 200),
    help="How many sizes of memory to plan for; by default 20, for a captured model 8.",
)
@out_option("reports/<scenario name>/, of a model one for each question, named by model, command and machine")
@prints_table
@TIME_LIMIT
@asks_scenario
def frontier(
    given: ScenarioInput, capacities: int | None, out: Path | None, output: Output, time_limit: str | None
) -> None:
    """Show what memory buys: the least time for each size of it.

    From the least GPU memory that can do to all that the workload needs: for each size the plan of the policy
    `optimal`, with its options in SCENARIO, and the lower bound for every schedule; beside them the other policies of
    SCENARIO, where they fit, of a model pytorch, checkpoint and save_on_cpu unless --policy names some. Prints one
    table; writes page, table and picture to DIR.
    """
    from vdnnsim.report import frontier as report
    from vdnnsim.report.caveats import capture_lines, glossary, kernel_times, remarks
    from vdnnsim.report.document import plain_table, titled_table
    from vdnnsim.report.findings import caption
    from vdnnsim.report.progress import ProgressBar
    from vdnnsim.report.result_table import ResultTable
    from vdnnsim.study.frontier import find_frontier

    asked = limited(_with_planner(given), time_limit)
    folder = report_folder(out, given.folder_name("frontier"), report.FRONTIER_WRITER, given.question)
    planner = next(each for each in asked.policies if each.name == _PLANNER)
    with ProgressBar() as bar:
        found = find_frontier(asked, planner, capacities or _CAPACITIES[asked.captured is not None], bar)
    written = report.write_frontier(asked, found, folder)
    rows, first = report.shown_rows(found), ("its time", "slower", "gap")
    table = plain_table(report.SHOWN, rows, output.has_all, first, left=0)
    said = (*report.findings(asked, found), *kernel_times(found.kernels), *capture_lines(asked))
    notes = *remarks(asked.workload), *glossary((each.label for each in asked.policies), asked.workload, of_speed=False)
    shown = titled_table(f"{caption(asked)}, by memory", table, notes, said)
    result = ResultTable(tuple(report.FRONTIER), tuple(report.frontier_rows(found)), shown)
    output.show(result, written.notice(folder, report.PAGE))


def _with_planner(given: ScenarioInput) -> "Scenario":
    """Return a scenario with the policy `optimal`, with default options if it has none.

    Beside a model stand what PyTorch does alone, with checkpoints and by copies, unless a policy was asked for.
    """
    from vdnnsim.policies.registry import resolve_policy
    from vdnnsim.study.less_work import POLICIES as USUAL

    scenario = given.scenario
    if given.path is None and not click.get_current_context().params["policies"]:
        usual = (resolve_policy(each, given.types) for each in USUAL)
        scenario = replace(scenario, policies=(*scenario.policies, *usual))
    if any(each.name == _PLANNER for each in scenario.policies):
        return scenario
    return replace(scenario, policies=(*scenario.policies, resolve_policy(_PLANNER, given.types)))


@click.command()
@click.argument("file", metavar="SCENARIO|STEP", type=NamedFile(SCENARIOS), required=False)
@describes_model
@click.option(
    "--hardware", "names", type=HARDWARE, multiple=True, help="Rank these profiles; by default one for each card."
)
@click.option(
    "--policy", "policies", type=POLICIES, multiple=True, help="A policy to try for a captured step or --model."
)
@click.option(
    "--price", "prices", metavar="FILE", type=FilePath(), help="YAML with the price of an hour of each machine."
)
@click.option(
    "--time-limit",
    metavar="TIME",
    help="End all searches after TIME of the processor, or `60 s wall`; 25 s for a captured model, of which it ends "
    "further captures as well, else no limit.",
)
@out_option("reports/<name>/, of a model one reports/<name>-machines/ for each question")
@prints_table
@POLICY_MODULE
def machines(
    file: Path | None,
    *,
    names: Sequence[str],
    policies: Sequence[str],
    prices: Path | None,
    time_limit: str | None,
    out: Path | None,
    output: Output,
    policy_modules: Sequence[str],
    **words: object,
) -> None:
    """Rank machines for one workload by fit, speed and cost, with expected errors.

    Of SCENARIO the fastest policy counts. Of a captured STEP, or of a PyTorch model that is captured now (--model
    my_model.py:make --batch 8), it is what PyTorch does or, if that does not fit, the first of what `run` tries that
    does; searches and further captures end after 25 s. Without --hardware it ranks one machine for each card, with the
    fewest GPUs that suffice; `list hardware` has them all. Prints a table; writes page, CSV and picture to DIR. Prices
    are yours:

    \b
    schema_version: 1
    currency: EUR
    per_hour: {rtx_4090: 0.39, a100_80gb: 1.79}   # of one GPU, with its share of the host
    samples_per_epoch: 1281167                    # without it, costs are of 1000 steps
    """  # noqa: D301  # what click is to keep begins with that character
    from vdnnsim.cost.model import checked_profile
    from vdnnsim.hardware.profile import find_profile, shipped_profiles
    from vdnnsim.planning.deadline import NEVER
    from vdnnsim.policies.registry import resolve_policy
    from vdnnsim.report.findings import question_text
    from vdnnsim.report.machines import MACHINES_WRITER, machines_table, progress_row, question, write_machines
    from vdnnsim.report.progress import ProgressBar
    from vdnnsim.scenario.captured import SUFFIX
    from vdnnsim.study.cached_answer import kept_ways
    from vdnnsim.study.less_work import PLAIN
    from vdnnsim.study.machines import one_of_each_card, rank_machines, read_prices
    from vdnnsim.study.replay_budget import RANKED_PER_S
    from vdnnsim.study.ways_on_machines import rank_by_ways

    is_scenario = file is not None and not file.name.endswith(SUFFIX)
    if time_limit is None and not is_scenario and not policies:
        time_limit = _OF_CAPTURED
    types, limit = policies_with(policy_modules), None if time_limit is None else parse_time_limit(time_limit)
    refuse_mixture(file, words, policies if is_scenario else ())
    paid = None if prices is None else read_prices(prices)
    beside = Path() if file is None else file.parent
    shipped = shipped_profiles()
    profiles = [checked_profile(find_profile(name, beside)) for name in names] or shipped
    if paid is not None:
        _check_names(paid.per_hour, prices, (*shipped, *profiles))
    tried = () if is_scenario else tuple(resolve_policy(each, types) for each in policies or (PLAIN,))
    given = _asked(file, words, profiles, tried, types)
    asked = given.scenario
    if not names:
        profiles = one_of_each_card(shipped, asked.gpus)
    asks = "" if is_scenario else question_text(asked, question(asked))
    folder = report_folder(out, asked.name if is_scenario else f"{asked.name}-machines", MACHINES_WRITER, asks)
    with ProgressBar() as bar:
        bar.expect(len(profiles))

        def show(found: "Offer | Unfit") -> None:
            bar.done(found.name, progress_row(found))

        if is_scenario or policies:
            deadline = NEVER if limit is None else limit.begin()
            ranking = rank_machines(
                asked,
                profiles,
                paid,
                captured_for=given.captured_for,
                first_where_it_fits=not is_scenario,
                done=show,
                deadline=deadline,
            )
        else:
            assert limit is not None, "as by default"
            operations = int(limit.seconds * RANKED_PER_S)
            ranking = rank_by_ways(
                asked,
                profiles,
                types,
                given.captured_for,
                paid,
                operations=operations,
                are_named=bool(names),
                done=show,
                tried_before=kept_ways,
            )
    own = asked.sources[:1] if asked.captured is None else asked.captured.sources
    sources = (*own, *(each for profile in profiles for each in profile.sources), *((paid.source,) if paid else ()))
    written = write_machines(asked, ranking, sources, folder)
    output.show(machines_table(asked, ranking, output.has_all), written.notice(folder, "machines.md"))


def _asked(
    file: Path | None,
    words: Mapping[str, object],
    profiles: Sequence["Profile"],
    policies: "tuple[Policy, ...]",
    types: "PolicyTypes",
) -> ScenarioInput:
    """Return a scenario, or a captured step or a model under policies on the first machine that can compute it."""
    from vdnnsim.scenario.captured import SUFFIX, captured_model
    from vdnnsim.scenario.read import read_scenario
    from vdnnsim.study.machines import scenario_on_any

    if file is None:
        return model_input(words, profiles, policies, types)
    if not file.name.endswith(SUFFIX):
        return ScenarioInput(read_scenario(file, types), types, file.parent, file)
    scenario = scenario_on_any(captured_model(file), file.name.removesuffix(SUFFIX), profiles, policies)
    return ScenarioInput(scenario, types, file.parent)


def _check_names(per_hour: Mapping[str, float], path: Path | None, profiles: Sequence["Profile"]) -> None:
    """Raise InputError for a price of an unknown machine."""
    from vdnnsim.files.messages import not_one_of

    known = list(dict.fromkeys(each.server.name for each in profiles))
    for name in per_hour:
        if name not in known:
            raise InputError(f"{path}: per_hour: {not_one_of(name, known, 'a hardware profile')}")
