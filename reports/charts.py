"""Pictures of the papers as plain data in SI: bar charts, clouds of durations, shares of errors."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Self

from vdnnsim.dnn.layers import Phase
from vdnnsim.plans.training_plan import BufferKind
from vdnnsim.report.palette import KIND_COLORS, OFFLOAD, PHASE_COLORS, SERIES_COLORS
from vdnnsim.report.scale import Scale


class Tint(Enum):
    """Colours by what they stand for; the (m) form of a policy is the lighter of two."""

    color: str

    def __new__(cls, meaning: str, color: str = "") -> Self:
        """Return the member that is found by its meaning."""
        made = object.__new__(cls)
        made._value_, made.color = meaning, color
        return made

    FEATURE_MAPS = "feature maps", KIND_COLORS[BufferKind.FEATURE_MAP]
    GRADIENT_MAPS = "gradient maps", KIND_COLORS[BufferKind.GRADIENT_MAP]
    WEIGHTS = "weights", KIND_COLORS[BufferKind.WEIGHTS]
    WEIGHT_GRADIENTS = "weight gradients", KIND_COLORS[BufferKind.WEIGHT_GRADIENT]
    WORKSPACE = "workspace", KIND_COLORS[BufferKind.WORKSPACE]
    FORWARD = "forward", PHASE_COLORS[Phase.FORWARD]
    BACKWARD = "backward", PHASE_COLORS[Phase.BACKWARD_DATA]
    COPIES = "copies", OFFLOAD
    GPU_MEMORY = "GPU memory", SERIES_COLORS[0]
    HOST_MEMORY = "host memory", OFFLOAD
    MEAN = "mean", SERIES_COLORS[0]
    MAXIMUM = "maximum", "#8fc1e3"
    ALL_M = "all(m)", "#8fd3bd"
    ALL_P = "all(p)", SERIES_COLORS[2]
    CONV_M = "conv(m)", "#8fc1e3"
    CONV_P = "conv(p)", SERIES_COLORS[0]
    DYN = "dyn", OFFLOAD
    BASE_M = "base(m)", "#bdbdbd"
    BASE_P = "base(p)", "#4d4d4d"


@dataclass(frozen=True, slots=True)
class Axis:
    """One vertical axis: what it measures, without the unit; its upper end, zero for room above the largest value."""

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

    The label is written below; empty where the legend says it. `failed` marks groups with an asterisk; empty for none.
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
    """Markers on the right axis: values[slot][group], None for no marker; a line may join those of a slot."""

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
    """One pair of axes: labels of groups along the horizontal axis; the height of each bar may be written above it."""

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
class Cloud:
    """Measured and simulated durations of one card; positions in `Clouds.kinds`, and how far off they are, in words."""

    name: str
    found: str
    pairs: tuple[tuple[int, float, float], ...]


@dataclass(frozen=True, slots=True)
class Clouds:
    """A slide: a small diagonal for each card, all on the same axes; names of two kinds of rows at most."""

    title: str
    subtitle: str
    clouds: tuple[Cloud, ...]
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ErrorShares:
    """A slide: for each estimator the share of rows with at most some error; below the limit it is of no use."""

    title: str
    subtitle: str
    errors: tuple[tuple[str, tuple[float, ...]], ...]
    limit: float
    limit_name: str
