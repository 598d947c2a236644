"""What a batch consists of: images, sequences of tokens, videos of frames; samples, where that is not known."""

from dataclasses import dataclass
from typing import Final

from vdnnsim.dnn.graph import LayerGraph


@dataclass(frozen=True, slots=True)
class Sample:
    """One input of a batch; `step` is a token, frame or other element of the series that it is, empty for an image."""

    name: str
    step: str = ""
    steps: int = 1

    @property
    def names(self) -> str:
        return f"{self.name}s"

    @property
    def tokens(self) -> int:
        """Tokens of a sequence; 0 of what has none."""
        return self.steps if self.step == "token" else 0

    @property
    def length(self) -> str:
        """Its length, to be read after its name: ` of 1024 tokens`; empty for an image."""
        return f" of {self.steps} {self.step}s" if self.step else ""


IMAGE: Final = Sample("image")


def sample_of(graph: LayerGraph) -> Sample:
    """Return what a network reads: sequences of tokens where it looks vectors up, else by the shape of its input."""
    first = graph.maps[0]
    shape = first.shape
    if shape.steps == 1:
        return Sample("sequence", "token", graph.tokens) if graph.tokens > 1 else Sample(graph.sample)
    # Tokens that are their own labels are no map.
    if first.holds_indices or first.producer is not None:
        return Sample("sequence", "token", shape.steps)
    if shape.height * shape.width > 1:
        return Sample("video", "frame", shape.steps)
    return Sample("sequence", "element", shape.steps)
