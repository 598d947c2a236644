"""The command `machines`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vdnnsim.cli.options import CSV, POLICY_MODULE, FilePath, policies_with
from vdnnsim.cli.output import check_file, check_folder, has_all, print_result
from vdnnsim.errors import InputError, ProfileError

if TYPE_CHECKING:
    from vdnnsim.hardware.profile import Profile
    from vdnnsim.policies.registry import PolicyTypes
    from vdnnsim.scenario.scenario import Scenario

_PYTORCH = "pytorch"


@click.command()
@click.argument("question", metavar="SCENARIO|STEP", type=FilePath())
@click.option("--hardware", "names", metavar="NAME", multiple=True, help="Rank these profiles; by default all shipped.")
@click.option("--policy", "policies", metavar="NAME", multiple=True, help="Of a captured step: what is tried.")
@click.option("--price", "prices", metavar="FILE", type=FilePath(), help="What an hour of each machine costs, as YAML.")
@click.option("--out", metavar="DIR", type=FilePath(), help="Where to write; by default reports/<name>/.")
@CSV
@POLICY_MODULE
def machines(
    question: Path,
    *,
    names: Sequence[str],
    policies: Sequence[str],
    prices: Path | None,
    out: Path | None,
    csv_file: Path | None,
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
    from vdnnsim.report.caveats import glossary, remarks
    from vdnnsim.report.csv_file import write_csv
    from vdnnsim.report.findings import workload_text
    from vdnnsim.report.folder import refuse_foreign
    from vdnnsim.report.machines import MACHINE_FILES, MACHINES_WRITER, write_machines
    from vdnnsim.report.machines import question as asked_of_all
    from vdnnsim.report.tables.fitted import plain_table
    from vdnnsim.report.tables.machines import (
        LEFT_OUT_FIRST,
        MACHINES,
        findings,
        machine_rows,
        marks,
        shown,
        title,
    )
    from vdnnsim.report.tables.terminal import titled_table
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
    if csv_file is not None:
        check_file(csv_file)
    with ProgressBar() as bar:
        bar.expect(len(profiles))
        ranking = rank_machines(asked, profiles, paid, first_that_fits=is_step, done=bar.done)
    own = asked.sources[:1] if not is_step else asked.captured.sources if asked.captured else ()
    sources = (*own, *(each for profile in profiles for each in profile.sources), *((paid.source,) if paid else ()))
    written = write_machines(asked, ranking, sources, folder)
    if csv_file is not None:
        write_csv(csv_file, tuple(MACHINES), machine_rows(ranking))
    header, rows = shown(ranking, asked.workload, asked.gpus)
    table = plain_table(header, rows, has_all(csv_file), LEFT_OUT_FIRST)
    said = (f"{title(ranking, workload_text(asked))}.", *findings(ranking))
    notes = [*remarks(asked.workload), *glossary(ranking.policies, of_speed=False), *marks(ranking)]
    talk = f"wrote {len(written.files)} files to {folder}/; read {folder / 'machines.md'} first"
    print_result(titled_table(asked_of_all(asked), table, notes, said), talk)


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
