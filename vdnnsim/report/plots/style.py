"""Style of all pictures: size, fonts, ticks, rules and legends; and figures as PNG."""

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal, ParamSpec

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from PIL import Image

from vdnnsim.report.palette import ALARM, GRID, INK, MUTED
from vdnnsim.units import format_bytes

ABOVE: Final = ("data", "axes fraction")
"""Coordinates: a value of the horizontal axis, and a share of the height."""

Given = ParamSpec("Given")
_PIXELS: Final = (1600, 900)
_DOTS_PER_INCH: Final = 100
_LOGARITHMIC_FROM: Final = 6.0
"""Ratio of largest to smallest value from which an axis is logarithmic."""
_WIDEST: Final = 0.985
"""Share of the width at which a title ends at the latest."""
# The types of matplotlib name the keys of one release.
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
    "text.parse_math": False,
    "xtick.color": INK,
    "xtick.labelsize": 15,
    "ytick.color": INK,
    "ytick.labelsize": 15,
}


@contextmanager
def house_style() -> Iterator[None]:
    """Draw in this style, whatever the user's matplotlibrc says, and restore theirs."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_SETTINGS)
        yield


def new_figure(title: str, subtitle: str) -> Figure:
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
    """Return a size at which a line fits, where that many characters do at the given size."""
    return points * min(1.0, characters / len(text))


def ruled(axes: Axes, which: Literal["x", "y", "both"]) -> None:
    """Draw grid lines behind the data."""
    axes.grid(axis=which, color=GRID, zorder=0)
    axes.set_axisbelow(True)


def spread(axis: Axis, values: Sequence[float], room: float, *, linear: bool = False) -> bool:
    """Scale an axis to values, with `room` at both ends as a share; return whether it is logarithmic."""
    axes, low, high = axis.axes, min(values), max(values)
    set_limits = axes.set_xlim if axis is axes.xaxis else axes.set_ylim
    if linear or low <= 0 or high <= _LOGARITHMIC_FROM * low:
        margin = room * (high - low) or 0.1 * high or 1.0
        set_limits(low - margin, high + margin)
        return False
    (axes.set_xscale if axis is axes.xaxis else axes.set_yscale)("log")
    margin = (high / low) ** (0.8 * room)
    set_limits(low / margin, high * margin)
    return True


def plain_ticks(axis: Axis, places: Sequence[float] = (), subs: Sequence[float] = (1, 2, 5)) -> None:
    """Write plain numbers at the ticks of a logarithmic axis: at `places`, else at `subs` of each power of ten."""
    axis.set_major_locator(FixedLocator(places) if places else LogLocator(subs=subs))
    axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.3g}" if value < 1000 else f"{value:.0f}"))


def even_ticks(axis: Axis) -> Sequence[float]:
    """Return evenly spaced ticks between the limits of an axis if these are within a power of ten, else none."""
    low, high = axis.get_view_interval()
    if high >= 10 * low:
        return ()
    return [each for each in MaxNLocator(7, steps=(1, 2, 5, 10)).tick_values(low, high) if low <= each <= high]


def keep_left_spine_only(axes: Axes) -> None:
    """Hide the frame but for its left side."""
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
    """Draw the capacity of a GPU as a vertical line, with its name `lift` points above."""
    axes.axvline(limit, color=ALARM, linewidth=2.5, zorder=zorder)
    look: Any = {"ha": side, "color": ALARM, "fontweight": "bold"}
    write(axes, f"capacity {format_bytes(nbytes)}", (limit, 1.0), (0, lift), ABOVE, **look)


def name_band(axes: Axes, name: str, height: float, points: float) -> None:
    """Write the name of a band left of the names of its rows."""
    place = axes.get_yaxis_transform()
    write(axes, name, (0, height), (-88, 0), place, ha="right", va="center", fontweight="bold", fontsize=points)


def write_legend(figure: Figure, handles: Sequence[Artist], *, rows: int = 1, **look: Any) -> None:  # noqa: ANN401  # as matplotlib's
    """Write a legend below, in `rows` rows or more if it is too wide."""
    look = {"loc": "lower center", "frameon": False, "bbox_to_anchor": (0.5, 0.0), **look}
    FigureCanvasAgg(figure)  # without a canvas nothing has a width
    for columns in range(-(-len(handles) // rows), 0, -1):
        legend = figure.legend(handles=handles, ncols=columns, **look)
        if columns == 1 or legend.get_window_extent().width <= figure.bbox.width:
            return
        legend.remove()


def point_handle(label: str, color: str, marker: str = "o", size: float = 10, **look: Any) -> Line2D:  # noqa: ANN401  # as matplotlib's
    return Line2D([], [], linestyle="", color=color, marker=marker, markersize=size, label=label, **look)


def write(
    axes: Axes,
    text: str,
    at: tuple[float, float],
    shift: tuple[float, float] = (0, 0),
    coords: Any = "data",  # noqa: ANN401  # whatever matplotlib can place by
    **look: Any,  # noqa: ANN401  # as matplotlib's
) -> None:
    """Write text at a place, shifted by points; `coords` are `xycoords` of matplotlib, `look` properties of `Text`."""
    axes.annotate(text, at, xycoords=coords, xytext=shift, textcoords="offset points", **look)


def as_png(draw: Callable[Given, Figure]) -> Callable[Given, bytes]:
    """Return a function that draws the figure as PNG in this style; equal data give equal bytes."""

    def drawn(*given: Given.args, **named: Given.kwargs) -> bytes:
        with house_style():
            return png(draw(*given, **named))

    return drawn


def png(figure: Figure) -> bytes:
    """Return a figure as PNG without date or version, so that equal figures give equal bytes."""
    content = io.BytesIO()
    # Compression takes a tenth of a run; slides are opaque.
    pixels, size = FigureCanvasAgg(figure).print_to_buffer()  # type: ignore[no-untyped-call]
    image = Image.frombuffer("RGBA", size, pixels).convert("RGB")
    image.save(content, format="png", compress_level=3, dpi=(figure.dpi, figure.dpi))
    return content.getvalue()
