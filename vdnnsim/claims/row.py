"""One checked number of a paper."""

from collections.abc import Sequence
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

    @property
    def of_table(self) -> bool:
        """Whether it is a number of one of the paper's tables, and not of its text."""
        return self.id.startswith("t-")

    @property
    def by_construction(self) -> bool:
        """Whether the row merely returns an input, and says so in its reason."""
        return self.reason.startswith("by construction")


@dataclass(frozen=True, slots=True)
class ClaimCount:
    """How much of a paper comes out: claims of its text, each with all of its rows, and numbers of its tables apart.

    Attributes:
        claims, reproduced: of the text.
        by_construction: how many of the reproduced ones merely return an input.
        numbers, met: of the tables.
    """

    claims: int
    reproduced: int
    by_construction: int
    numbers: int
    met: int

    @classmethod
    def of(cls, rows: Sequence[ClaimRow]) -> "ClaimCount":
        """Count the claims that some rows belong to."""
        text, tables = ([row for row in rows if row.of_table is of_table] for of_table in (False, True))
        ids = {row.claim_id for row in text}
        missed = {row.claim_id for row in text if row.verdict is not Verdict.REPRODUCED}
        trivial = {row.claim_id for row in text if row.by_construction} - missed
        met = sum(row.verdict is Verdict.REPRODUCED for row in tables)
        return cls(len(ids), len(ids) - len(missed), len(trivial), len(tables), met)

    def __str__(self) -> str:
        """`34 of 35 claims reproduced, 4 of them by construction`: those of the text."""
        trivial = f", {self.by_construction} of them by construction" if self.by_construction else ""
        return f"{self.reproduced} of {self.claims} claims reproduced{trivial}"
