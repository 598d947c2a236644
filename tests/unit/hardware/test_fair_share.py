from hypothesis import given
from hypothesis import strategies as st

from vdnnsim.hardware.fair_share import max_min_rates


def test_the_textbook_line() -> None:
    """Three channels of 1 in a row; a long copy over all, and one, two and three short ones on each.

    The third channel has four copies: 1/4 each, the long one among them. The second has the long one and two short
    ones: 3/4 among two, 3/8 each. The first has 3/4 left for its one short copy.
    """
    paths = [("x", "y", "z"), ("x",), ("y",), ("y",), ("z",), ("z",), ("z",)]

    assert max_min_rates(paths, {"x": 1, "y": 1, "z": 1}) == [0.25, 0.75, 0.375, 0.375, 0.25, 0.25, 0.25]


PATHS = st.lists(st.sets(st.integers(0, 5), min_size=1).map(sorted), max_size=10)
CAPACITIES = st.lists(st.floats(0.5, 100), min_size=6, max_size=6).map(lambda values: dict(enumerate(values)))


@given(PATHS, CAPACITIES)
def test_the_rates_are_max_min_fair(paths: list[list[int]], capacities: dict[int, float]) -> None:
    """No channel is overloaded, and each copy has a bottleneck: a full channel on which no copy has a higher rate.

    Rates with this property are unique, so the order of the copies does not matter.
    """
    rates = max_min_rates(paths, capacities)
    load = {channel: sum(r for r, path in zip(rates, paths, strict=True) if channel in path) for channel in capacities}

    assert all(load[channel] <= capacities[channel] * (1 + 1e-9) for channel in capacities)
    for rate, path in zip(rates, paths, strict=True):
        assert any(
            load[channel] >= capacities[channel] * (1 - 1e-9)
            and all(other <= rate * (1 + 1e-9) for other, its in zip(rates, paths, strict=True) if channel in its)
            for channel in path
        )
