"""A validation: each task under its policies on one device."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from vdnnsim.errors import DeviceError, ExecutionRefused
from vdnnsim.hardware.server import PRETENDED, Server
from vdnnsim.policies.interface import Policy
from vdnnsim.validation.executor import Laboratory
from vdnnsim.validation.method import Method
from vdnnsim.validation.row import Outcome, Row
from vdnnsim.validation.run.comparison import Comparison

Provenance = tuple[tuple[str, str], ...]

_PASSING: Final = ("date", "sm_clock", "memory_clock", "pcie", PRETENDED)
"""Provenance that differs between runs on one machine, as an idle GPU lowers clocks and link, or is reported apart."""


@dataclass(frozen=True, slots=True)
class Validation:
    """The inputs and rows of a validation.

    Attributes:
        provenance: (name, text) of the device and its software now.
        sources: (name, SHA-256) of each input file.
        left: number of plans that were not run because the user interrupted.
    """

    device: str
    provenance: Provenance
    server: Server
    sources: tuple[tuple[str, str], ...]
    method: Method
    rows: tuple[Row, ...]
    left: int = 0


def validation_rows(
    laboratory: Laboratory, server: Server, method: Method, policies: Sequence[Policy], done: Callable[[str], None]
) -> tuple[Row, ...]:
    """Execute and replay each task of a method under its policies.

    Refused plans and lack of memory are outcomes of rows. `done` is called with the label of each task and policy. Rows
    that are there are returned when the user interrupts.
    """
    rows: list[Row] = []
    try:
        for row in _executed(laboratory, server, method, policies, done):
            rows.append(row)  # noqa: PERF402 - those before an interruption are kept
    except KeyboardInterrupt:
        if not rows:
            raise
    return tuple(rows)


def _executed(
    laboratory: Laboratory, server: Server, method: Method, policies: Sequence[Policy], done: Callable[[str], None]
) -> Iterator[Row]:
    for task in method.tasks:
        try:
            sides = Comparison.of(task, server, laboratory.executor(task.workload), method)
        except (DeviceError, ExecutionRefused) as failure:
            outcome = Outcome.REFUSED if isinstance(failure, ExecutionRefused) else Outcome.OUT_OF_MEMORY
            for policy in task.chosen(policies):
                yield Row(task, policy.label, outcome, note=str(failure))
                done(f"{task.label}, {policy.label}")
            continue
        for policy in task.chosen(policies):
            yield from sides.rows(policy)
            done(f"{task.label}, {policy.label}")


def warnings_of(validation: Validation) -> tuple[str, ...]:
    """Return what a reader has to know beside the rows."""
    ended = [f"interrupted: {validation.left} plans were not run"] if validation.left else []
    return (*ended, *differences(validation.server, validation.provenance))


def differences(server: Server, now: Provenance) -> tuple[str, ...]:
    """Return the differences in provenance between a device and a profile; pretended GPUs are named first."""
    kinds = {f"the profile {server.name}": server.is_pretended, "this GPU": PRETENDED in dict(now)}
    which = " and ".join(name for name, is_pretended in kinds.items() if is_pretended)
    pretended = [f"{which}: pretended, and takes the times that it was given"] if which else []
    if server.kernels is None:
        return (*pretended, f"{server.name}: no kernel of this machine was measured, all of its times are predicted")
    measured, found = ({name: text for name, text in each if name not in _PASSING} for each in (server.provenance, now))
    differing = (
        f"{name}: {measured.get(name, 'nothing')} in the profile {server.name}, {found.get(name, 'nothing')} here"
        for name in {**measured, **found}
        if measured.get(name) != found.get(name)
    )
    return (*pretended, *differing)
