"""Pictures as PNG files, and measured against simulated durations as plain data."""

from dataclasses import dataclass
from pathlib import Path

from vdnnsim.files.atomic import replace_file


@dataclass(frozen=True, slots=True)
class Picture:
    """A PNG file: its name, its title, and its content."""

    name: str
    description: str
    png: bytes

    def write(self, path: str | Path) -> None:
        """Write the PNG to a file, or raise OutputError."""
        replace_file(Path(path), self.png)

    def _repr_png_(self) -> bytes:
        """Return what a notebook shows where a cell ends with it."""
        return self.png


@dataclass(frozen=True, slots=True)
class Pair:
    """One row of a group, as `vgg16 (64)`; its kind is a position in `Parity.kinds`."""

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
    """A slide: durations of all rows, and their errors; names of two kinds of rows at most.

    The band around equality is a tolerance wide to either side, a share of the measured value.
    """

    title: str
    subtitle: str
    pairs: tuple[Pair, ...]
    kinds: tuple[str, ...]
    tolerance: float
    band: str
