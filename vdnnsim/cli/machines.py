"""The command `machines`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vdnnsim.cli.model import asked_model, describes_model, refuse_mixture
from vdnnsim.cli.options import POLICY_MODULE, FilePath, NamedFile, parse_time_limit, policies_with, prints_table
from vdnnsim.cli.output import Output, report_folder
from vdnnsim.errors import InputError
from vdnnsim.files.packaged import SCENARIOS

if TYPE_CHECKING:
    from vdnnsim.hardware.profile import Profile


@click.command()
@click.argument("question", metavar="SCENARIO|STEP", type=NamedFile(SCENARIOS), required=False)
@describes_model
@click.option("--hardware", "names", metavar="NAME", multiple=True, help="Rank these profiles; by default all shipped.")
@click.option(
    "--policy", "policies", metavar="NAME", multiple=True, help="Of a captured step or --model: what is tried."
)
@click.option("--price", "prices", metavar="FILE", type=FilePath(), help="What an hour of each machine costs, as YAML.")
@click.option(
    "--time-limit", metavar="TIME", help="End all searches after TIME of the processor, or as `60 s wall`; else none."
)
@click.option("--out", metavar="DIR", type=FilePath(), help="Where to write; by default reports/<name>/.")
@prints_table
@POLICY_MODULE
def machines(
    question: Path | None,
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
    """Rank machines for one workload: fit, speed, cost, how sure.

    The fastest of the policies of SCENARIO counts; of a captured STEP, or of a PyTorch model that is captured now
    (--model my_model.py:make --batch 8), what PyTorch does, and where that does not fit the fastest of
    checkpointing, offloading and a search of 10 s. The table here; page, CSV and picture in DIR. Prices are yours:

    \b
    schema_version: 1
    currency: EUR
    per_hour: {rtx_4090: 0.39, a100_80gb: 1.79}   # of one GPU, with its share of the host
    samples_per_epoch: 1281167                    # without it, costs are of 1000 steps
    """  # noqa: D301  # what click is to keep begins with that character
    from vdnnsim.cli.progress import ProgressBar
    from vdnnsim.hardware.profile import find_profile, load_profile, shipped_profiles
    from vdnnsim.planning.deadline import NEVER
    from vdnnsim.policies.registry import resolve_policy
    from vdnnsim.report.machines import MACHINE_FILES, MACHINES_WRITER, machines_table, write_machines
    from vdnnsim.scenario.captured import SUFFIX, captured_model
    from vdnnsim.scenario.prices import read_prices
    from vdnnsim.scenario.read import read_scenario
    from vdnnsim.study.advice import POLICIES
    from vdnnsim.study.machines import rank_machines, scenario_on_any

    types, limit = policies_with(policy_modules), None if time_limit is None else parse_time_limit(time_limit)
    is_file = question is not None and not question.name.endswith(SUFFIX)
    refuse_mixture(question, words, policies if is_file else ())
    paid = None if prices is None else read_prices(prices)
    beside = Path() if question is None else question.parent
    shipped = shipped_profiles()
    profiles = [load_profile(find_profile(name, beside)) for name in names] or shipped
    if paid is not None:
        _check_names(paid.per_hour, prices, (*shipped, *profiles))
    tried = () if is_file else tuple(resolve_policy(each, types) for each in policies or POLICIES)
    if question is None:
        asked = asked_model(words, profiles, tried).scenario
    elif is_file:
        asked = read_scenario(question, types)
    else:
        asked = scenario_on_any(captured_model(question), question.name.removesuffix(SUFFIX), profiles, tried)
    folder = report_folder(out, asked.name, MACHINE_FILES, MACHINES_WRITER)
    with ProgressBar() as bar:
        bar.expect(len(profiles))
        deadline = NEVER if limit is None else limit.begin()
        ranking = rank_machines(
            asked, profiles, paid, first_where_it_fits=not is_file, done=bar.done, deadline=deadline
        )
    own = asked.sources[:1] if asked.captured is None else asked.captured.sources
    sources = (*own, *(each for profile in profiles for each in profile.sources), *((paid.source,) if paid else ()))
    written = write_machines(asked, ranking, sources, folder)
    talk = f"wrote {len(written.files)} files to {folder}/; read {folder / 'machines.md'} first"
    output.show(machines_table(asked, ranking, output.has_all), talk)


def _check_names(per_hour: Mapping[str, float], path: Path | None, profiles: Sequence["Profile"]) -> None:
    """Refuse a price of a machine that there is not."""
    from vdnnsim.files.messages import not_one_of

    known = list(dict.fromkeys(each.server.name for each in profiles))
    for name in per_hour:
        if name not in known:
            raise InputError(f"{path}: per_hour: {not_one_of(name, known, 'a hardware profile')}")
