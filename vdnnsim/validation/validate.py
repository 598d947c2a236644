"""A validation: every task under its policies, one row after the other, on one device."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from vdnnsim.errors import DeviceError, ExecutionRefused
from vdnnsim.hardware.server import PRETENDED, Server
from vdnnsim.policies.interface import Policy
from vdnnsim.validation.executor import Laboratory
from vdnnsim.validation.method import Method
from vdnnsim.validation.row import Outcome, Row
from vdnnsim.validation.run.both_sides import BothSides

Provenance = tuple[tuple[str, str], ...]

_PASSING: Final = ("date", "sm_clock", "memory_clock", "pcie", PRETENDED)
"""What changes from one run to the next on the same machine, for a GPU at rest slows clocks and link down.

And what is said apart.
"""


@dataclass(frozen=True, slots=True)
class Validation:
    """What was compared, and how.

    Attributes:
        device: its name.
        provenance: what the device and its software say of themselves now, as (name, text).
        server: the machine as its profile describes it.
        sources: name as given and SHA-256 of each input file.
    """

    device: str
    provenance: Provenance
    server: Server
    sources: tuple[tuple[str, str], ...]
    method: Method
    rows: tuple[Row, ...]


def validation_rows(
    laboratory: Laboratory,
    server: Server,
    method: Method,
    policies: Sequence[Policy],
    done: Callable[[str], None],
) -> tuple[Row, ...]:
    """Execute and replay each task of a method under those of the policies that it is to run under, in their order.

    A row whose memory runs out or whose plan is refused says so, and the others go on. `done` is told of each task and
    policy that is finished.

    Raises:
        ProfileError: the machine's times do not cover a workload.
    """
    rows: list[Row] = []
    for task in method.tasks:
        try:
            sides = BothSides.of(task, server, laboratory.executor(task.workload), method)
        except (DeviceError, ExecutionRefused) as failure:
            outcome = Outcome.REFUSED if isinstance(failure, ExecutionRefused) else Outcome.OUT_OF_MEMORY
            for policy in task.chosen(policies):
                rows.append(Row(task, policy.label, outcome, note=str(failure)))
                done(f"{task.label}, {policy.label}")
            continue
        for policy in task.chosen(policies):
            rows += sides.rows(policy)
            done(f"{task.label}, {policy.label}")
    return tuple(rows)


def differences(server: Server, now: Provenance) -> tuple[str, ...]:
    """Return a line for each thing in which a device and its software differ from the machine of a profile.

    The first says it where a GPU is a pretended one.
    """
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
