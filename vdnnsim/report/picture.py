"""Pictures as PNG files, and the data of a parity plot."""

from dataclasses import dataclass
from pathlib import Path

from vdnnsim.files.atomic import replace_file


@dataclass(frozen=True, slots=True, repr=False)
class Picture:
    """A PNG file: its name, its title, and its content."""

    name: str
    description: str
    png: bytes

    def __repr__(self) -> str:
        return f"<{self.name}: {self.description}>"

    def write(self, path: str | Path) -> None:
        """Write the PNG to a file, or raise OutputError."""
        replace_file(Path(path), self.png)

    def _repr_png_(self) -> bytes:
        return self.png


@dataclass(frozen=True, slots=True)
class Pair:
    """A measured and a simulated duration of a group, as `vgg16 (64)`; `kind` is an index of `Parity.kinds`."""

    group: str
    kind: int
    measured_s: float
    simulated_s: float

    @property
    def error(self) -> float:
        """(simulated - measured) / measured."""
        return self.simulated_s / self.measured_s - 1


@dataclass(frozen=True, slots=True)
class Parity:
    """A parity plot with names of at most two kinds of rows; `tolerance` is a share of the measured value."""

    title: str
    subtitle: str
    pairs: tuple[Pair, ...]
    kinds: tuple[str, ...]
    tolerance: float
    band: str
