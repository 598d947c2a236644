"""One checked number of a paper."""

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """Whether the replay comes within the tolerance of what the paper states."""

    REPRODUCED = "reproduced"
    NOT_REPRODUCED = "not reproduced"


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """One row of `vdnnsim claims`; a claim of several numbers has a row for each.

    Attributes:
        id: of the claim, with the name of the number behind a dot: `v-vm-3.max`.
        where: section or figure of the paper.
        metric: what is measured, on which network, batch size and policy.
        expected, simulated, error: as text with units.
        verdict, recorded: what came out, and what the claims file records.
        reason: why it is not met, or what a reader should know of it; empty where nothing is.
        scenario: how to see it: a command or a scenario file.
    """

    id: str
    where: str
    metric: str
    expected: str
    simulated: str
    error: str
    verdict: Verdict
    recorded: Verdict
    reason: str
    scenario: str

    @property
    def claim_id(self) -> str:
        """Id of the claim that this row belongs to, as v-vm-3 of v-vm-3.max."""
        return self.id.partition(".")[0]
