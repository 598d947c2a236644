"""Names beside points: the first place that is free, and never one upon another."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.transforms import Bbox

from vdnnsim.report.plots.point_labels import Box, along, place_labels

FRAME: Box = (0, 0, 1000, 600)
POINTS = st.lists(st.tuples(st.integers(50, 950), st.integers(50, 550)), min_size=1, max_size=25)


def mark(x: float, y: float) -> Box:
    """A dot of 10 x 10."""
    return x - 5, y - 5, x + 5, y + 5


def share(one: Box, other: Box) -> bool:
    """Whether two boxes share more than an edge."""
    shared = Bbox.intersection(Bbox.from_extents(*one), Bbox.from_extents(*other))
    return shared is not None and min(shared.width, shared.height) > 0


def test_names_stand_beside_their_points_where_there_is_room() -> None:
    """The first stands 10 right of its point; the second, 4 above, has no room there before it stands higher."""
    points = [(100, 100), (100, 104)]
    first, second = place_labels(points, [(60, 20)] * 2, FRAME, [mark(*point) for point in points], [])
    assert first == pytest.approx((110, 90, 170, 110))
    assert second is not None
    assert second[1] >= 110
    # At the edge a name stands on the other side.
    assert place_labels([(990, 300)], [(60, 20)], FRAME, [mark(990, 300)], []) == ((920, 290, 980, 310),)
    # A line beside a point is not covered.
    (line,) = along([(114, 90), (114, 105)], 2)
    (box,) = place_labels([(100, 100)], [(60, 20)], FRAME, [mark(100, 100)], [line])
    assert box is not None
    assert not share(box, line)
    # Too long to stand within the walls, which end 60 from the point: 62 is the first distance that is free.
    walls = [(40, 40, 65, 160), (135, 40, 160, 160), (40, 40, 160, 65), (40, 135, 160, 160)]
    point, size, marks = (100, 100), (80, 20), [mark(100, 100), *walls]
    assert place_labels([point], [size], FRAME, marks, []) == (None,)
    assert place_labels([point], [size], FRAME, marks, [], insisted=(0,)) == ((162, 90, 242, 110),)
    # A name without room is left out.
    assert place_labels([(100, 100)], [(2000, 20)], FRAME, [mark(100, 100)], []) == (None,)


@given(POINTS)
def test_no_name_covers_another_or_a_point_or_leaves_the_frame(points: list[tuple[int, int]]) -> None:
    marks = [mark(*point) for point in points]
    boxes = [box for box in place_labels(points, [(110, 18)] * len(points), FRAME, marks, []) if box is not None]
    assert boxes
    assert not any(share(one, other) for one, other in combinations(boxes, 2))
    assert not any(share(box, each) for box in boxes for each in marks)
    assert all(0 <= left < right <= 1000 and 0 <= low < high <= 600 for left, low, right, high in boxes)
