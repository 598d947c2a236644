"""Options that several commands share, their parsing, and names that a shell completes."""

import sys
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click
from click.shell_completion import CompletionItem

from vdnnsim.cli.output import Output
from vdnnsim.errors import InputError
from vdnnsim.files.messages import plain, quote
from vdnnsim.files.packaged import PROFILES, SCENARIOS, find_file, shipped_folder

if TYPE_CHECKING:
    from vdnnsim.planning.deadline import TimeLimit
    from vdnnsim.policies.registry import PolicyTypes
    from vdnnsim.scenario.scenario import Scenario


def completed(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """Return the names that begin as what was typed; where none does, the shell completes files."""
    found = sorted({each for each in names if each.startswith(incomplete)})
    return [CompletionItem(each) for each in found] or [CompletionItem(incomplete, type="file")]


def files_of(folders: Sequence[str]) -> list[str]:
    """Return the names of YAML files that a command finds in folders, and files of the working directory."""
    places = [place for folder in folders for place in (Path(folder), shipped_folder(folder))]
    return [*(each.stem for place in places for each in place.glob("*.yaml")), *map(str, Path().glob("*.yaml"))]


class Named(click.ParamType):  # type: ignore[type-arg]  # is not generic before click 8.4
    """Text that a shell completes by names; what reads it checks it.

    Args:
        names: that there are.
        several: whether it is a list of names with commas.
    """

    name = "name"

    def __init__(self, names: Callable[[], Iterable[str]], *, several: bool = False) -> None:
        self._names, self._several = names, several

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401, ARG002  # as click has it
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002  # as click has it
        before, comma, last = incomplete.rpartition(",") if self._several else ("", "", incomplete)
        return completed((f"{before}{comma}{each}" for each in self._names()), f"{before}{comma}{last}")


def _policies() -> Iterable[str]:
    from vdnnsim.policies.registry import known_policies

    return known_policies()


def _models() -> Iterable[str]:
    """Return models that are known by name without importing a library, and files to take a function of."""
    from calibration.capture.hub_models import hub_models

    return [*hub_models(), *(f"{each}:" for each in Path().glob("*.py"))]


HARDWARE: Final = Named(lambda: files_of([PROFILES]))
POLICIES: Final = Named(_policies)
POLICY_LIST: Final = Named(_policies, several=True)
MODELS: Final = Named(_models)


Command = TypeVar("Command", bound=Callable[..., Any])
Value = TypeVar("Value")


class FilePath(click.Path):
    """A path that click does not check; its reader or writer reports errors."""

    def __init__(self) -> None:
        super().__init__(readable=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401  # as click has it
        if value == "" and param is not None:
            raise InputError(f"{param.opts[0]}: found '', expected a path")
        return super().convert(value, param, ctx)


_MISTYPED: Final = 0.8
"""Share of common characters of a name and one that was mistyped."""


class NamedFile(FilePath):
    """A file by its path, or a shipped one by its name."""

    def __init__(self, *folders: str) -> None:
        super().__init__()
        self._folders = folders

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401  # as click has it
        """Return the path of the file; suggest a scenario for the name of a network, and an option for a model."""
        file, separator, _ = str(value).rpartition(":")
        if separator and file.endswith(".py") and SCENARIOS in self._folders:
            raise InputError(
                f"{quote(str(value))} is a model, expected a scenario, or in its place `--model {value} --batch N "
                "--hardware NAME`"
            )
        try:
            return find_file(str(super().convert(value, param, ctx)), self._folders)
        except InputError:
            from vdnnsim.dnn.networks import NETWORKS

            asked = plain(str(value))
            network = next((name for name in NETWORKS if plain(name).startswith(asked)), "")
            # Mistyped by a letter, it may begin like a longer name.
            if plain(network) != asked and get_close_matches(asked, map(plain, files_of(self._folders)), 1, _MISTYPED):
                raise
            if not network or SCENARIOS not in self._folders:
                raise
            raise InputError(
                f"{quote(str(value))} is a network, expected a scenario that names it, as "
                f"`workload: {{network: {network}, batch_size: 32}}`; `vdnnsim examples DIR` copies some"
            ) from None

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG002  # as click has it
        return completed(files_of(self._folders), incomplete)


SCENARIO = click.argument("scenario", type=NamedFile(SCENARIOS), required=False)
_CSV = click.option(
    "--csv", "csv_file", metavar="FILE", type=FilePath(), help="Also write the table to FILE; - prints CSV instead."
)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print the table as JSON instead.")


def out_option(default: str, metavar: str = "DIR") -> Callable[[Command], Command]:
    return click.option("--out", metavar=metavar, type=FilePath(), help=f"Where to write; by default {default}.")


POLICY_MODULE = click.option(
    "--policy-module",
    "policy_modules",
    metavar="NAME",
    multiple=True,
    help="Import policies of your own from a Python module; may be given several times.",
)


REQUIRE_FIT = click.option("--require-fit", is_flag=True, help="Exit with 4 if no policy fits.")
UNFIT = 4
"""Exit status where nothing fits under --require-fit."""


def prints_table(command: Command) -> Command:
    """Add `--csv` and `--json` to a command, passed to it as one `output`."""

    @_CSV
    @_JSON
    @wraps(command)
    def with_output(*, csv_file: Path | None, as_json: bool, **others: Any) -> Any:  # noqa: ANN401  # as the command has it
        output = Output(csv_file, as_json)
        output.check()
        return command(output=output, **others)

    return cast("Command", with_output)


TIME_LIMIT = click.option(
    "--time-limit",
    metavar="TIME",
    help="End the search of each policy that searches after TIME, as `60 s` of the processor or `60 s wall`, with the "
    "best plan found. `run` of a model ends all that it tries by then, and tries what was not tried yet.",
)


def limited(scenario: "Scenario", time_limit: str | None) -> "Scenario":
    """Return a scenario with a time limit for its policies that search; raise InputError for none in a scenario's file.

    For a model that was captured, the limit is of the answer as well.
    """
    from vdnnsim.policies.interface import is_search

    if time_limit is None:
        return scenario
    if scenario.captured is None and not any(map(is_search, scenario.policies)):
        raise InputError("--time-limit: none of the policies searches, expected one with the option time_limit")
    parse_time_limit(time_limit)
    return scenario.limited(time_limit)


def parse_time_limit(text: str) -> "TimeLimit":
    from vdnnsim.planning.deadline import TimeLimit

    return read_option("--time-limit", TimeLimit.parse, text)


def read_option(option: str, read: Callable[..., Value], *arguments: object) -> Value:
    """Return the value of an option, or raise InputError with the name of the option before the reader's message."""
    try:
        return read(*arguments)
    except InputError as failure:
        raise InputError(f"{option}: {failure}") from None


def policies_with(modules: Sequence[str]) -> "PolicyTypes":
    """Return the policies by name, with those of the user's modules."""
    from vdnnsim.policies.registry import known_policies

    if modules:
        # Console scripts do not import from the working directory; it comes last, so that files shadow no library.
        sys.path.append(str(Path.cwd()))
    return known_policies(modules)
