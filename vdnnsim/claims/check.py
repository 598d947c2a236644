"""Holds what a paper states against its replays: the same for every paper, which says how its metrics are computed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from vdnnsim.claims.claim import Claim, NetworkBatch, read_network
from vdnnsim.claims.row import AGGREGATES, ClaimRow, Value, in_unit_of, judge

Runs = TypeVar("Runs")
OfAll = Callable[[Sequence[NetworkBatch], Sequence[Any]], Value]


class Metric(NamedTuple):
    """What is computed of each network of a claim.

    Attributes:
        words: what it is called.
        of_one: computes it from the replays, a claim with its machine, and a network with its batch size; in SI, or a
            text.
        of_all: makes one value of what all networks have; None where the claim says how.
    """

    words: str
    of_one: Callable[[Any, Claim, NetworkBatch], Any]
    of_all: OfAll | None = None


@dataclass(frozen=True)
class Metrics(Generic[Runs]):
    """The metrics of a paper by name.

    Attributes:
        seen_in: where a claim is seen: a scenario file, or words.
        groups: networks that claims name together.
    """

    named: Mapping[str, Metric]
    seen_in: Callable[[Claim, Sequence[NetworkBatch]], str]
    groups: Mapping[str, tuple[NetworkBatch, ...]] = field(default_factory=dict)

    def check(self, claim: Claim, runs: Runs, hardware: str) -> ClaimRow:
        """Compute a claim's number and hold it against what the paper states; `hardware` unless it names its own."""
        return self.row(claim, self.simulate(claim, runs, hardware), hardware)

    def row(self, claim: Claim, value: Value, hardware: str) -> ClaimRow:
        """Return the row of a claim, whose number is known."""
        seen_in = self.seen_in(_on(claim, hardware), self.networks(claim))
        return judge(claim, value, metric=self.describe(claim), scenario=seen_in)

    def simulate(self, claim: Claim, runs: Runs, hardware: str) -> Value:
        """Return what the replay says, in the claim's unit."""
        return self.together(claim, [self.of_one(claim, runs, hardware, each) for each in self.networks(claim)])

    def of_one(self, claim: Claim, runs: Runs, hardware: str, network: NetworkBatch) -> Any:  # noqa: ANN401  # of its metric
        """Return what the replay says of one network of a claim."""
        return self.named[claim.metric].of_one(runs, _on(claim, hardware), network)

    def together(self, claim: Claim, found: Sequence[Any]) -> Value:
        """Return what the networks of a claim have as one value, in its unit."""
        of_all = self.named[claim.metric].of_all
        return in_unit_of(claim, found) if of_all is None else of_all(self.networks(claim), found)

    def networks(self, claim: Claim) -> tuple[NetworkBatch, ...]:
        """Return the networks of a claim with their batch sizes."""
        if isinstance(claim.networks, str):
            return self.groups[claim.networks]
        return tuple(map(read_network, claim.networks))

    def describe(self, claim: Claim) -> str:
        """Return what a row measures in one line: metric, networks, GPUs and machine if stated, policy, baseline."""
        networks = claim.networks.replace("_", " ") if isinstance(claim.networks, str) else " ".join(claim.networks)
        over = f"{AGGREGATES[claim.over][0]} of " if claim.over else ""
        gpus = f"{claim.gpus} GPUs" if claim.gpus > 1 else ""
        reading = f" ({claim.reading})" if claim.reading else ""
        policy = f"{claim.policy}{f' over {claim.baseline}' if claim.baseline else ''}{reading}"
        words = self.named[claim.metric].words
        return ", ".join(filter(None, (words, f"{over}{networks}", gpus, claim.hardware, policy)))


def _on(claim: Claim, hardware: str) -> Claim:
    return claim if claim.hardware else msgspec.structs.replace(claim, hardware=hardware)
