import pytest

from vdnnsim.memory.requests import round_up


@pytest.mark.parametrize(("nbytes", "expected"), [(0, 0), (1, 512), (511, 512), (512, 512), (513, 1024), (1024, 1024)])
def test_sizes_are_whole_granules(nbytes: int, expected: int) -> None:
    """A granule of 512 B: one byte takes a whole one, one byte more than one takes two, nothing takes nothing."""
    assert round_up(nbytes, 512) == expected


def test_a_granule_of_one_byte_changes_nothing() -> None:
    assert round_up(12_345, 1) == 12_345
