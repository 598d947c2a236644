"""From measurements to the figures of a profile, with numbers that can be worked out by hand."""

from dataclasses import replace

import pytest
import torch

from calibration.measure.device_rates import DeviceRates
from calibration.measure.host_costs import HostCosts
from calibration.measure.link_times import MATRIX_PRODUCT, MORE_STREAMS, OTHER_DIRECTION, TimedCopy
from calibration.measure.machine import MeasuredMachine, Measurements, machine_of
from calibration.measure.statistics import Sample
from tests.calibration.measure.fake_device import FakeDevice
from vdnnsim.errors import DeviceError
from vdnnsim.hardware.copies import CopyRow, Direction, HostMemory
from vdnnsim.hardware.server import Figure, Origin
from vdnnsim.units import MIB, ElementType

LATENCIES_S = {Direction.H2D: 10e-6, Direction.D2H: 20e-6}
RATES = {(Direction.H2D, HostMemory.PINNED): 50e9, (Direction.D2H, HostMemory.PINNED): 40e9}
PAGEABLE_RATE = 5e9
SIZES = [4096 * 4**step for step in range(10)]


def steady(seconds: float) -> Sample:
    return Sample(seconds, 0.01, 10)


def wild(seconds: float) -> Sample:
    return Sample(seconds, 0.4, 10)


def alone(direction: Direction, memory: HostMemory, nbytes: int) -> TimedCopy:
    rate = RATES.get((direction, memory), PAGEABLE_RATE)
    return TimedCopy(direction, memory, nbytes, steady(LATENCIES_S[direction] + nbytes / rate))


def beside(direction: Direction, other: str, kept: float, other_kept: float = 1.0) -> TimedCopy:
    return TimedCopy(direction, HostMemory.PINNED, 64 * MIB, steady(1e-3), other, kept, other_kept)


MEASURED = Measurements(
    rates=DeviceRates(ElementType.FLOAT32, steady(2.0), 10**12, "a product", steady(0.5), 10**12, "a stream"),
    link=(
        *(alone(direction, memory, nbytes) for direction in Direction for memory in HostMemory for nbytes in SIZES),
        beside(Direction.H2D, OTHER_DIRECTION, 0.8),
        beside(Direction.D2H, OTHER_DIRECTION, 0.6),
        beside(Direction.H2D, MORE_STREAMS[1], 0.51),
        beside(Direction.H2D, MATRIX_PRODUCT, 1.02, 0.9),
    ),
    host=HostCosts(steady(6e-6), steady(9e-6), steady(3e-6), tuple((n, steady(1e-3 + n / 1e9)) for n in SIZES)),
)


class _Gpu(FakeDevice):
    torch_device = torch.device("cuda", 0)


def machine(measured: Measurements, device: FakeDevice | None = None) -> MeasuredMachine:
    return machine_of(device or FakeDevice(), measured, "a link")


def figure(stated: MeasuredMachine, path: str) -> Figure:
    return next(each for each in stated.figures if each.path == path)


def test_rates_are_work_by_time() -> None:
    """10^12 FLOP in 2 s; 10^12 B in half a second."""
    gpu = machine(MEASURED).gpu

    assert gpu.flop_per_s == {ElementType.FLOAT32: 0.5e12}
    assert gpu.dram_bytes_per_s == 2e12
    assert (gpu.name, gpu.memory_bytes, gpu.granule_bytes) == ("Fake", 2**30, 512)


def test_both_directions_share_the_mean_of_their_latencies() -> None:
    """10 and 20 us, and each its rate."""
    link = machine(MEASURED).link

    assert link.latency_s == pytest.approx(15e-6, rel=1e-3)
    assert link.h2d_bytes_per_s == pytest.approx(50e9, rel=1e-3)
    assert link.d2h_bytes_per_s == pytest.approx(40e9, rel=1e-3)
    assert link.pageable_h2d_bytes_per_s == pytest.approx(5e9, rel=1e-3)


def test_fractions_are_means_over_what_was_measured() -> None:
    """(0.8 + 0.6) / 2; a copy that is faster beside other work keeps all of its rate; what is missing is None."""
    link = machine(MEASURED).link

    assert link.both_directions_fraction == pytest.approx(0.7)
    assert link.beside_compute_fraction == 1.0
    assert link.beside_memory_bound_fraction is None


def test_the_host_issues_kernels_copies_and_events() -> None:
    """6, 9 and 3 us: 6 in the mean. Pinning is the line 1 ms + n / 1 GB/s."""
    host = machine(MEASURED).host

    assert host.issue_s == pytest.approx(6e-6)
    assert host.pin_latency_s == pytest.approx(1e-3)
    assert host.pin_bytes_per_s == pytest.approx(1e9)


def test_every_figure_says_how_it_was_measured() -> None:
    found = machine(MEASURED)

    assert {each.origin for each in found.figures} == {Origin.MEASURED}
    assert figure(found, "gpu.peak.float32").source == "a product, median of 10 runs, spread 1 %"
    assert "off by" in figure(found, "link.h2d").source


def test_of_a_pretended_gpu_nothing_is_measured() -> None:
    """It was told what is found there; each figure says so."""
    found = machine_of(FakeDevice(), MEASURED, "a link", is_pretended=True)

    assert {each.origin for each in found.figures} == {Origin.ASSUMED}
    assert all(each.source.startswith("on a pretended GPU: ") for each in found.figures)
    assert "2 streams at once carry 1.02 times as much" in figure(found, "link.h2d").source
    assert "h2d 80 % beside a copy in the other direction" in figure(found, "link.both_directions").source


def test_microseconds_are_stated_as_such() -> None:
    """(7.4671 + 7.4671 + 7.4671) / 3 us; the number is what the text says, to the last bit."""
    host = replace(MEASURED.host, kernel=steady(7.4671e-6), copy=steady(7.4671e-6), mark=steady(7.4671e-6))

    found = machine(replace(MEASURED, host=host))

    assert figure(found, "host.issue").text == "7.467 us"
    assert found.host.issue_s == 7.467 * 1e-6


def test_sizes_that_spread_too_much_are_left_out_of_the_line() -> None:
    """A wild sample of a hundred times its time does not move it."""
    first, *rest = MEASURED.link

    found = machine(replace(MEASURED, link=(replace(first, sample=wild(100 * first.sample.median)), *rest)))

    assert found.link.latency_s == pytest.approx(15e-6, rel=1e-3)
    assert "16.0 KiB to 1.00 GiB" in figure(found, "link.h2d").source


def test_what_no_profile_can_do_without_is_refused_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU it is used, and its source says how far it spreads."""
    measured = replace(MEASURED, rates=replace(MEASURED.rates, product=wild(2.0)))

    assert figure(machine(measured), "gpu.peak.float32").source == "a product, median of 10 runs, spread 40 %"
    monkeypatch.setattr(
        "torch.cuda.get_device_properties", lambda _: pytest.fail("a figure before this one is refused")
    )
    with pytest.raises(DeviceError, match=r"^gpu\.peak\.float32: median of 10 runs, spread 40 %, expected at most 25"):
        machine(measured, _Gpu())


def test_the_table_of_copies_has_all_that_was_measured_and_says_what_is_too_wild() -> None:
    """Ten sizes of four kinds alone, of which the first is wild, and four beside other work."""
    first, *rest = MEASURED.link
    rows = [each.row for each in (replace(first, sample=wild(1.0)), *rest)]

    assert len(rows) == 4 * 10 + 4
    assert rows[0] == CopyRow(Direction.H2D, HostMemory.PINNED, "", 4096, 1.0, 0.4, 10, "spreads too much to be used")
    assert rows[-1] == CopyRow(Direction.H2D, HostMemory.PINNED, MATRIX_PRODUCT, 64 * MIB, 1e-3, 0.01, 10, "")
    assert [row.note for row in rows[1:]] == [""] * 43
