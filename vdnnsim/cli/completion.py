"""Names that a shell completes: of machines, policies, scenarios and models."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from vdnnsim.files.packaged import PROFILES, shipped_folder


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
