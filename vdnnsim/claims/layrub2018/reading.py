"""One alternative to how a claim of Jin et al. (2018) is read."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reading:
    """What another reading of a claim gives.

    Attributes:
        id: the claim.
        question: what is read otherwise.
        paper, taken, alternative: the numbers as text.
    """

    id: str
    question: str
    paper: str
    taken: str
    alternative: str

    @property
    def cells(self) -> tuple[str, ...]:
        """Its row of readings.csv."""
        return self.id, self.question, self.paper, self.taken, self.alternative
