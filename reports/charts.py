"""Pictures as plain data in SI units: bar charts, clouds of durations, shares of errors."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Self

from vdnnsim.dnn.layers import Phase
from vdnnsim.plans.training_plan import BufferKind
from vdnnsim.report.palette import KIND_COLORS, OFFLOAD, PHASE_COLORS, SERIES_COLORS
from vdnnsim.report.scale import Scale


class Tint(Enum):
    """Colours by meaning; that of (m) is the lighter of two."""

    color: str

    def __new__(cls, meaning: str, color: str = "") -> Self:
        """Return the member of a meaning."""
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
    """A vertical axis: label without unit, scale, and upper end, 0 for room above the largest value."""

    label: str
    scale: Scale
    top: float = 0.0


@dataclass(frozen=True, slots=True)
class Series:
    """One entry of the legend: a value for each group."""

    name: str
    tint: Tint
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """Bars side by side in each group, each a stack of series from the bottom up.

    The label is written below, unless empty; `failed` marks groups with an asterisk.
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
    """A pair of axes with groups along the horizontal one, and perhaps numbers above the bars."""

    groups: tuple[str, ...]
    slots: tuple[Slot, ...]
    left: Axis
    right: Points | None = None
    level: Level | None = None
    numbered: bool = True


@dataclass(frozen=True, slots=True)
class Chart:
    """A slide: title with the finding, subtitle with what is shown, panels side by side."""

    title: str
    subtitle: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Cloud:
    """Measured and simulated durations of one card, with positions in `Clouds.kinds`, and their errors in words."""

    name: str
    found: str
    pairs: tuple[tuple[int, float, float], ...]


@dataclass(frozen=True, slots=True)
class Clouds:
    """A slide: a small parity plot for each card, all on the same axes; names of at most two kinds of rows."""

    title: str
    subtitle: str
    clouds: tuple[Cloud, ...]
    kinds: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ErrorShares:
    """A slide: the cumulative share of rows by error for each estimator, and a limit of useful errors."""

    title: str
    subtitle: str
    errors: tuple[tuple[str, tuple[float, ...]], ...]
    limit: float
    limit_name: str
