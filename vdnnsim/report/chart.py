"""Pictures as plain data, so that whoever has numbers needs no matplotlib.

Bar charts, which `plots.bars` draws, and measured against simulated durations, which `plots.validation.parity` draws.
All values are SI; the scale of an axis turns them into its unit.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from vdnnsim.replace import replace_file
from vdnnsim.report.scale import Scale


class Tint(Enum):
    """Colours by what they stand for; the (m) form of a policy is the lighter of two."""

    FEATURE_MAPS = "feature maps"
    GRADIENT_MAPS = "gradient maps"
    WEIGHTS = "weights"
    WEIGHT_GRADIENTS = "weight gradients"
    WORKSPACE = "workspace"
    FORWARD = "forward"
    BACKWARD = "backward"
    COPIES = "copies"
    GPU_MEMORY = "GPU memory"
    HOST_MEMORY = "host memory"
    MEAN = "mean"
    MAXIMUM = "maximum"
    ALL_M = "all(m)"
    ALL_P = "all(p)"
    CONV_M = "conv(m)"
    CONV_P = "conv(p)"
    DYN = "dyn"
    BASE_M = "base(m)"
    BASE_P = "base(p)"


@dataclass(frozen=True, slots=True)
class Picture:
    """One file to show: its name, what it says in one line, which is its title, and its content."""

    name: str
    description: str
    png: bytes

    def write(self, path: str | Path) -> None:
        """Write the PNG to a file.

        Raises:
            OutputError: the file cannot be written.
        """
        replace_file(Path(path), self.png)

    def _repr_png_(self) -> bytes:
        """Return what a notebook shows where a cell ends with it."""
        return self.png


@dataclass(frozen=True, slots=True)
class Axis:
    """One vertical axis.

    Attributes:
        label: what it measures, without the unit.
        top: its upper end; zero for room above the largest value.
    """

    label: str
    scale: Scale
    top: float = 0.0


@dataclass(frozen=True, slots=True)
class Series:
    """One colour of the legend: a value for each group."""

    name: str
    tint: Tint
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """What each group has at one place: bars side by side, each a stack of series from the bottom up.

    Attributes:
        label: written below the place; empty where the legend says it.
        failed: for each group, whether to mark it with an asterisk; empty where none is.
    """

    bars: tuple[tuple[Series, ...], ...]
    label: str = ""
    failed: tuple[bool, ...] = ()

    @classmethod
    def of(cls, name: str, tint: Tint, values: Iterable[float], fits: Iterable[bool] = ()) -> "Slot":
        """Return one bar of one colour; groups that do not fit are marked."""
        return cls(((Series(name, tint, tuple(map(float, values))),),), failed=tuple(not each for each in fits))


@dataclass(frozen=True, slots=True)
class Points:
    """Markers on the right axis: values[slot][group], None for no marker.

    Attributes:
        joined: whether a line joins the markers of a slot.
    """

    name: str
    axis: Axis
    values: tuple[tuple[float | None, ...], ...]
    joined: bool


@dataclass(frozen=True, slots=True)
class Level:
    """A horizontal line on the left axis, as the capacity."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes.

    Attributes:
        groups: labels along the horizontal axis.
        numbered: whether the height of each bar is written above it.
    """

    groups: tuple[str, ...]
    slots: tuple[Slot, ...]
    left: Axis
    right: Points | None = None
    level: Level | None = None
    numbered: bool = True


@dataclass(frozen=True, slots=True)
class Chart:
    """A slide: the title says what to see, the subtitle what is shown; its panels stand side by side."""

    title: str
    subtitle: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """One row.

    Attributes:
        group: what it stands with, as `vgg16 (64)`.
        kind: position in `Parity.kinds`.
    """

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
    """A slide: durations of all rows, and how far each is off.

    Attributes:
        kinds: what the legend calls each kind of row, two at most.
        tolerance: half the width of the band around equality, as a share of the measured value.
        band: what the legend calls it.
    """

    title: str
    subtitle: str
    pairs: tuple[Pair, ...]
    kinds: tuple[str, ...]
    tolerance: float
    band: str


@dataclass(frozen=True, slots=True)
class Cloud:
    """Measured and simulated durations of one card; positions in `Clouds.kinds`, and how far off they are, in words."""

    name: str
    found: str
    pairs: tuple[tuple[int, float, float], ...]


@dataclass(frozen=True, slots=True)
class Clouds:
    """A slide: a small diagonal for each card, all on the same axes.

    Attributes:
        kinds: what the legend calls each kind of row, two at most.
    """

    title: str
    subtitle: str
    clouds: tuple[Cloud, ...]
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ErrorShares:
    """A slide: for each estimator the share of rows whose error is at most what the axis says.

    Attributes:
        errors: by estimator.
        limit: left of it an estimate is too low to be of use.
        limit_name: what is written there.
    """

    title: str
    subtitle: str
    errors: tuple[tuple[str, tuple[float, ...]], ...]
    limit: float
    limit_name: str
