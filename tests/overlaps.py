"""Overlapping texts in pictures."""

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

_TOUCHING = 4.0
"""Pixels by which boxes may overlap: they have room above and below their letters."""


def refuse_overlaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no picture be drawn that has overlapping texts."""
    draw = FigureCanvasAgg.print_to_buffer

    def checked(canvas: FigureCanvasAgg) -> Any:  # noqa: ANN401  # as matplotlib has it
        assert not overlapping(canvas.figure)
        return draw(canvas)  # type: ignore[no-untyped-call]

    monkeypatch.setattr(FigureCanvasAgg, "print_to_buffer", checked)


def overlapping(figure: Figure) -> list[tuple[str, str]]:
    """Return each two texts whose boxes overlap; those at an angle do not fill their boxes and are left out."""
    figure.draw_without_rendering()
    boxes = list(_boxes(figure))
    return [(first, second) for (first, one), (second, other) in combinations(boxes, 2) if _share(one, other)]


def _boxes(figure: Figure) -> Iterator[tuple[str, Bbox]]:
    hidden = set(_beyond_limits(figure))
    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if text not in hidden and text.get_visible() and text.get_text().strip() and text.get_rotation() % 90 == 0:
            yield text.get_text(), text.get_window_extent()


def _beyond_limits(figure: Figure) -> Iterator[Text]:
    """Yield labels of ticks that are not drawn."""
    for axes in figure.axes:
        for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            used = {*axis.get_major_ticks(), *axis.get_minor_ticks()}
            for tick in (*axis.majorTicks, *axis.minorTicks):
                if tick not in used or not min(limits) <= tick.get_loc() <= max(limits):
                    yield from (tick.label1, tick.label2)


def _share(one: Bbox, other: Bbox) -> bool:
    shared = Bbox.intersection(one, other)
    return shared is not None and min(shared.width, shared.height) > _TOUCHING
