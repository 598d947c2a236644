import pytest
import torch

from calibration.devices.interface import Interval
from calibration.measure.link_times import Copy, Load, _covered, copy_sizes, time_concurrently
from tests.calibration.measure.fake_device import FakeDevice, FakeMark
from vdnnsim.hardware.copies import Direction, HostMemory
from vdnnsim.units import GIB, KIB, MIB


@pytest.mark.parametrize("direction", Direction)
def test_a_copy_moves_on_from_run_to_run(direction: Direction) -> None:
    """Two bytes at a time out of six, from the second place on: places 1, 2, 0."""
    host, on_device = torch.zeros(6, dtype=torch.uint8), torch.zeros(6, dtype=torch.uint8)
    source, target = (host, on_device) if direction is Direction.H2D else (on_device, host)
    source.copy_(torch.arange(1, 7))
    copy = Copy(direction, HostMemory.PINNED, 2, host, on_device, place=1)

    contents = []
    for _ in range(3):
        copy.run()
        contents.append(target.tolist())

    assert contents == [[0, 0, 3, 4, 0, 0], [0, 0, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]]


def interval(start_s: float, end_s: float) -> Interval:
    return Interval(FakeMark(start_s), FakeMark(end_s))


def test_only_runs_inside_those_of_the_others_count() -> None:
    """The second load runs from 1 to 4, and the two middle runs of the first fill just that."""
    first = [interval(0, 1), interval(1, 2.5), interval(2.5, 4), interval(4, 6)]
    second = [interval(1, 2), interval(2, 4)]
    assert _covered([first, second], 0) == [1.5, 1.5]
    assert _covered([first, second], 1) == [1, 2]
    # 4 KiB times 4 nine times is 4 KiB x 2^18 = 1 GiB.
    sizes = copy_sizes(GIB)
    assert (sizes[0], sizes[1], sizes[-1], len(sizes)) == (4 * KIB, 16 * KIB, GIB, 10)
    assert copy_sizes(64 * MIB)[-1] == 64 * MIB


def test_loads_run_beside_each_other_as_long_as_they_should() -> None:
    """Of 1 and 2 ms: 20 ms hold twenty of one and ten of the other, all but the ends beside each other."""
    device = FakeDevice()
    loads = [
        Load(device.memory, device.work(1e-3), alone_s=1e-3),
        Load(device.compute, device.work(2e-3), alone_s=2e-3),
    ]
    samples = time_concurrently(device, loads, window_s=20e-3)
    assert [sample.median for sample in samples] == [pytest.approx(1e-3), pytest.approx(2e-3)]
    assert device.launched == 30
    # 1 and 3 ms by turns; 10 runs by their times alone, then 20, then 40, and of the other one as many.
    device = FakeDevice()
    loads = [
        Load(device.memory, device.work(1e-3, 3e-3), alone_s=2e-3),
        Load(device.compute, device.work(2e-3), alone_s=2e-3),
    ]
    assert time_concurrently(device, loads, window_s=20e-3) == ()
    assert device.launched == 2 * (10 + 20 + 40)
