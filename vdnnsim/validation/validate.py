"""A validation: every case under its policies, one row after the other, on one device."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vdnnsim.errors import DeviceError, ExecutionRefused
from vdnnsim.hardware.server import Server
from vdnnsim.policies.port import Policy
from vdnnsim.validation.bench import ValidationBench
from vdnnsim.validation.method import Method
from vdnnsim.validation.port import Laboratory
from vdnnsim.validation.row import Outcome, Row


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
    provenance: tuple[tuple[str, str], ...]
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
    """Execute and replay each case of a method under those of the policies that it is to run under.

    A row whose memory runs out or whose plan is refused says so, and the others go on.

    Args:
        laboratory: the device.
        server: the machine that its profile describes.
        method: what to run and how.
        policies: in the order of the rows.
        done: is told of each case and policy that is finished.

    Raises:
        ProfileError: the machine's times do not cover a workload.
    """
    rows: list[Row] = []
    for case in method.cases:
        try:
            bench = ValidationBench.of(case, server, laboratory.executor(case.workload), method)
        except (DeviceError, ExecutionRefused) as failure:
            outcome = Outcome.REFUSED if isinstance(failure, ExecutionRefused) else Outcome.OUT_OF_MEMORY
            for policy in case.chosen(policies):
                rows.append(Row(case, policy.label, outcome, note=str(failure)))
                done(f"{case.label}, {policy.label}")
            continue
        for policy in case.chosen(policies):
            rows += bench.rows(policy)
            done(f"{case.label}, {policy.label}")
    return tuple(rows)
