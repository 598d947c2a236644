"""How all pictures look: size, type, and colours that people who see fewer colours can tell apart (Okabe and Ito).

A copy and the stall that waits for it have the same colour.
"""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal, ParamSpec

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from PIL import Image

from vdnnsim.dnn.layers import Phase
from vdnnsim.plans.training_plan import BufferKind
from vdnnsim.trace import StallCause
from vdnnsim.units import format_bytes

INK: Final = "#1a1a1a"
MUTED: Final = "#6b6b6b"
GRID: Final = "#e4e4e4"
ALARM: Final = "#c0392b"
OFFLOAD: Final = "#e69f00"
PREFETCH: Final = "#cc79a7"
ON_DEMAND: Final = "#8e2f6b"
EXCHANGE: Final = "#b8a500"

PHASE_COLORS: Final = {
    Phase.FORWARD: "#0072b2",
    Phase.BACKWARD_DATA: "#56b4e9",
    Phase.BACKWARD_WEIGHTS: "#009e73",
    Phase.BACKWARD: "#117a8b",
    Phase.UPDATE: "#4d4d4d",
}
STALL_COLORS: Final = {
    StallCause.OFFLOAD: OFFLOAD,
    StallCause.PREFETCH: PREFETCH,
    StallCause.ON_DEMAND: ON_DEMAND,
    StallCause.AGGREGATION: EXCHANGE,
    StallCause.PINNING: "#d55e00",
    StallCause.HOST: "#9a9a9a",
}
STRETCH_COLORS: Final = ("#fdd49e", "#fc8d59", "#d7301f", "#67000d")
"""Of copies, the darker the longer they take than alone."""
KIND_COLORS: Final = {
    BufferKind.WEIGHTS: "#4d4d4d",
    BufferKind.WEIGHT_GRADIENT: "#9a9a9a",
    BufferKind.OPTIMIZER_STATE: "#cc79a7",
    BufferKind.STATISTICS: "#009e73",
    BufferKind.LABELS: "#117733",
    BufferKind.FEATURE_MAP: "#0072b2",
    BufferKind.GRADIENT_MAP: "#56b4e9",
    BufferKind.WORKSPACE: "#f0c53a",
}
"""In the order in which they are stacked: what stays at the bottom, what comes and goes above it."""

LIGHT_COLORS: Final = frozenset(
    (*STRETCH_COLORS[:2], OFFLOAD, PREFETCH, EXCHANGE, PHASE_COLORS[Phase.BACKWARD_DATA], STALL_COLORS[StallCause.HOST])
)
"""On these one writes in ink, on the others in white."""

ABOVE: Final = ("data", "axes fraction")
"""Places over or under a value of the horizontal axis, the axes being 1 high."""

Given = ParamSpec("Given")
_PIXELS: Final = (1600, 900)
_DOTS_PER_INCH: Final = 100
_WIDEST: Final = 0.985
"""Where a title of wide characters ends at the latest, of the width of the slide."""
# Typed as anything, for the types of matplotlib name the keys of one release.
_SETTINGS: Final[Any] = {
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.labelsize": 16,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.family": ["DejaVu Sans"],
    "font.size": 15,
    "hatch.linewidth": 1.2,
    "text.color": INK,
    # A dollar in the name of a policy is a dollar.
    "text.parse_math": False,
    "xtick.color": INK,
    "xtick.labelsize": 15,
    "ytick.color": INK,
    "ytick.labelsize": 15,
}


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in the style of the house, whatever the user's matplotlibrc says; it is back in force afterwards."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        yield


def new_figure(title: str, subtitle: str) -> Figure:
    """Return an empty slide whose title says what to see, and whose subtitle says what is shown."""
    width, height = (pixels / _DOTS_PER_INCH for pixels in _PIXELS)
    figure = Figure(figsize=(width, height), dpi=_DOTS_PER_INCH)
    above = figure.text(0.03, 0.955, title, fontsize=_font_size(22, title, 85), fontweight="bold", va="center")
    below = figure.text(0.03, 0.905, subtitle, fontsize=_font_size(15, subtitle, 140), color=MUTED, va="center")
    FigureCanvasAgg(figure)  # without a canvas nothing has a width
    for text in (above, below):
        box = text.get_window_extent()
        if box.x1 > _WIDEST * figure.bbox.width:
            text.set_fontsize(text.get_fontsize() * (_WIDEST * figure.bbox.width - box.x0) / box.width)
    return figure


def _font_size(points: float, text: str, characters: int) -> float:
    """Return a size at which a line stays on the slide, where that many characters fill it at the given one."""
    return points * min(1.0, characters / len(text))


def ruled(axes: Axes, which: Literal["x", "y", "both"]) -> None:
    """Draw thin lines behind what is drawn, across `x`, `y` or `both` axes."""
    axes.grid(axis=which, color=GRID, zorder=0)
    axes.set_axisbelow(True)


def plain_ticks(axis: Axis) -> None:
    """Write the ticks of a logarithmic axis as plain numbers, at 1, 2 and 5 times the powers of ten."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def keep_left_spine_only(axes: Axes) -> None:
    """Take the frame away where bars or rows speak for themselves."""
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)
    axes.tick_params(left=False)


def mark_capacity(
    axes: Axes,
    limit: float,
    nbytes: int,
    *,
    lift: float = 6,
    side: Literal["left", "center", "right"] = "center",
    zorder: float = 1,
) -> None:
    """Draw a line upwards where the memory of a GPU ends, and write above it how much it has.

    Args:
        axes: whose x is memory.
        limit: where it is, in the unit of the axis.
        nbytes: of it.
        lift: points from the axes to the words.
        side: of the words that lies on the line.
        zorder: of the line.
    """
    axes.axvline(limit, color=ALARM, linewidth=2.5, zorder=zorder)
    said = f"capacity {format_bytes(nbytes)}"
    write(axes, said, (limit, 1.0), (0, lift), ABOVE, ha=side, color=ALARM, fontweight="bold")


def name_band(axes: Axes, name: str, height: float, points: float) -> None:
    """Write left of the names of rows what all rows of a band are, in the middle of the band."""
    place = axes.get_yaxis_transform()
    write(axes, name, (0, height), (-88, 0), place, ha="right", va="center", fontweight="bold", fontsize=points)


def write_legend(figure: Figure, handles: list[Patch]) -> None:
    """Write a legend below in as few rows as the slide is wide enough for, two at least."""
    FigureCanvasAgg(figure)  # without a canvas nothing has a width
    columns = -(-len(handles) // 2)
    while True:
        legend = figure.legend(
            handles=handles, loc="lower center", ncols=columns, frameon=False, fontsize=14, bbox_to_anchor=(0.5, 0.0)
        )
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()
        columns -= 1


def write(
    axes: Axes,
    text: str,
    at: tuple[float, float],
    shift: tuple[float, float] = (0, 0),
    coords: Any = "data",  # noqa: ANN401  # whatever matplotlib can place by
    **look: Any,  # noqa: ANN401  # as matplotlib's
) -> None:
    """Write text beside a place.

    Args:
        axes: those of the place.
        text: what to write.
        at: the place.
        shift: from there, in points.
        coords: by what the place is told, as matplotlib's `xycoords`.
        look: how it looks, as matplotlib's `Text` takes it.
    """
    axes.annotate(text, at, xycoords=coords, xytext=shift, textcoords="offset points", **look)


def as_png(draw: Callable[Given, Figure]) -> Callable[Given, bytes]:
    """Return a function that draws the same as PNG, in the style of the house; equal data give equal bytes."""

    def drawn(*given: Given.args, **named: Given.kwargs) -> bytes:
        with house_style():
            return png(draw(*given, **named))

    return drawn


def png(figure: Figure) -> bytes:
    """Return a figure as PNG; equal figures give equal bytes, for neither date nor version is written into it."""
    content = io.BytesIO()
    # Packing takes a tenth of a run; nothing shines through a slide.
    pixels, size = FigureCanvasAgg(figure).print_to_buffer()  # type: ignore[no-untyped-call]
    image = Image.frombuffer("RGBA", size, pixels).convert("RGB")
    image.save(content, format="png", compress_level=3, dpi=(figure.dpi, figure.dpi))
    return content.getvalue()
