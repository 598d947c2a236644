"""The command `machines`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vdnnsim.cli.options import POLICY_MODULE, FilePath, NamedFile, policies_with, prints_table
from vdnnsim.cli.output import Output, check_folder
from vdnnsim.errors import InputError, ProfileError
from vdnnsim.shipped import SCENARIOS

if TYPE_CHECKING:
    from vdnnsim.hardware.profile import Profile
    from vdnnsim.policies.registry import PolicyTypes
    from vdnnsim.scenario.scenario import Scenario

_PYTORCH = "pytorch"


@click.command()
@click.argument("question", metavar="SCENARIO|STEP", type=NamedFile(SCENARIOS))
@click.option("--hardware", "names", metavar="NAME", multiple=True, help="Rank these profiles; by default all shipped.")
@click.option("--policy", "policies", metavar="NAME", multiple=True, help="Of a captured step: what is tried.")
@click.option("--price", "prices", metavar="FILE", type=FilePath(), help="What an hour of each machine costs, as YAML.")
@click.option("--out", metavar="DIR", type=FilePath(), help="Where to write; by default reports/<name>/.")
@prints_table
@POLICY_MODULE
def machines(
    question: Path,
    *,
    names: Sequence[str],
    policies: Sequence[str],
    prices: Path | None,
    out: Path | None,
    output: Output,
    policy_modules: Sequence[str],
) -> None:
    r"""Rank machines for one workload: which hold it, with which policy, how fast, at what cost, and how sure that is.

    The fastest of the policies of SCENARIO counts; of a captured STEP what PyTorch does, and where that does not fit
    the first that does of checkpointing and offloading. The table here; page, CSV and picture in DIR. Prices are yours:

    \b
    schema_version: 1
    currency: EUR
    per_hour: {rtx_4090: 0.39, a100_80gb: 1.79}   # of one GPU, with its share of the host
    samples_per_epoch: 1281167                    # without it, costs are of 1000 steps
    """
    from vdnnsim.cli.progress import ProgressBar
    from vdnnsim.hardware.profile import find_profile, load_profile, shipped_profiles
    from vdnnsim.machines import rank_machines
    from vdnnsim.report.folder import refuse_foreign
    from vdnnsim.report.machines import MACHINE_FILES, MACHINES_WRITER, machines_table, write_machines
    from vdnnsim.scenario.captured import SUFFIX
    from vdnnsim.scenario.prices import read_prices

    types = policies_with(policy_modules)
    is_step = question.name.endswith(SUFFIX)
    if policies and not is_step:
        raise InputError(f"--policy: {question} names its policies, expected none here")
    paid = None if prices is None else read_prices(prices)
    shipped = shipped_profiles()
    profiles = tuple(load_profile(find_profile(name, question.parent)) for name in names) or shipped
    if paid is not None:
        _check_names(paid.per_hour, prices, (*shipped, *profiles))
    asked = _of_step(question, policies, types, profiles) if is_step else _of_file(question, types)
    folder = Path("reports") / asked.name if out is None else out
    check_folder(folder)
    refuse_foreign(folder, MACHINE_FILES, MACHINES_WRITER)
    with ProgressBar() as bar:
        bar.expect(len(profiles))
        ranking = rank_machines(asked, profiles, paid, first_that_fits=is_step, done=bar.done)
    own = asked.sources[:1] if not is_step else asked.captured.sources if asked.captured else ()
    sources = (*own, *(each for profile in profiles for each in profile.sources), *((paid.source,) if paid else ()))
    written = write_machines(asked, ranking, sources, folder)
    talk = f"wrote {len(written.files)} files to {folder}/; read {folder / 'machines.md'} first"
    output.show(machines_table(asked, ranking, output.has_all), talk)


def _of_file(path: Path, types: "PolicyTypes") -> "Scenario":
    from vdnnsim.scenario.read import read_scenario

    return read_scenario(path, types)


def _of_step(path: Path, policies: Sequence[str], types: "PolicyTypes", profiles: Sequence["Profile"]) -> "Scenario":
    """Return the scenario of a captured step on the first machine that can compute it."""
    from vdnnsim.advice import POLICIES
    from vdnnsim.policies.registry import resolve_policy
    from vdnnsim.scenario.captured import SUFFIX, captured_model, scenario_of

    model = captured_model(path)
    chosen = tuple(resolve_policy(each, types) for each in policies or (_PYTORCH, *POLICIES))
    refusal: ProfileError | None = None
    for profile in profiles:
        try:
            return scenario_of(model, path.name.removesuffix(SUFFIX), profile, chosen)
        except ProfileError as failure:
            refusal = refusal or failure
    assert refusal is not None, "there is at least one machine"
    raise refusal


def _check_names(per_hour: "dict[str, float] | object", path: Path | None, profiles: Sequence["Profile"]) -> None:
    """Refuse a price of a machine that there is not."""
    from collections.abc import Mapping

    from vdnnsim.messages import not_one_of

    known = list(dict.fromkeys(each.server.name for each in profiles))
    assert isinstance(per_hour, Mapping)
    for name in per_hour:
        if name not in known:
            raise InputError(f"{path}: per_hour: {not_one_of(name, known, 'a hardware profile')}")
