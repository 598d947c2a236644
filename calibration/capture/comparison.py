"""Two captures of one program beside each other: as a GPU would do it, and on a GPU, pretended or real."""

from collections import Counter
from dataclasses import dataclass

from vdnnsim.dnn.captured_step import CapturedStep


@dataclass(frozen=True)
class Comparison:
    """How two captures differ; the first and the second of each.

    Attributes:
        saved_bytes: that autograd saves beside parameters and inputs.
        peak_live_bytes: the most that is alive at once.
        operators: by name how often each was dispatched, of those that were not dispatched equally often.
    """

    saved_bytes: tuple[int, int]
    peak_live_bytes: tuple[int, int]
    operators: dict[str, tuple[int, int]]

    @property
    def is_equal(self) -> bool:
        """Whether they agree to the byte."""
        sizes = self.saved_bytes, self.peak_live_bytes
        return not self.operators and all(first == second for first, second in sizes)

    def __str__(self) -> str:
        """Say it in a sentence, of a capture without memory and one with real tensors."""
        if self.is_equal:
            return "captured without memory it saves and holds the same to the byte, by the same operators"
        counts = (f"{name} {first} times, not {second}" for name, (first, second) in self.operators.items())
        operators = f"; {', '.join(counts)}" if self.operators else ""
        return (
            f"captured without memory it saves {self.saved_bytes[0]} B, not {self.saved_bytes[1]}, and holds "
            f"{self.peak_live_bytes[0]} B, not {self.peak_live_bytes[1]}{operators}"
        )


def compare(first: CapturedStep, second: CapturedStep) -> Comparison:
    """Return how two captures of one program differ; operations that move nothing, as views do, do not count."""
    counts = [Counter(each.name for each in step.operations if each.bytes_moved) for step in (first, second)]
    names = sorted(counts[0] | counts[1])
    return Comparison(
        saved_bytes=(first.saved_bytes, second.saved_bytes),
        peak_live_bytes=(first.peak_live_bytes, second.peak_live_bytes),
        operators={name: (counts[0][name], counts[1][name]) for name in names if counts[0][name] != counts[1][name]},
    )
