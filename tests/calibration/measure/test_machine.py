"""Figures of a profile from measurements, with numbers worked out by hand."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from calibration.measure.device_rates import DeviceRates, Rate
from calibration.measure.host_costs import HostCosts
from calibration.measure.link_times import MATRIX_PRODUCT, MORE_STREAMS, OTHER_DIRECTION, TimedCopy
from calibration.measure.machine import MeasuredMachine, Measurements, fit_line, machine_of
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


def unsteady(seconds: float) -> Sample:
    return Sample(seconds, 0.4, 10)


def alone(direction: Direction, memory: HostMemory, nbytes: int) -> TimedCopy:
    rate = RATES.get((direction, memory), PAGEABLE_RATE)
    return TimedCopy(direction, memory, nbytes, steady(LATENCIES_S[direction] + nbytes / rate))


def beside(direction: Direction, other: str, kept: float, other_kept: float = 1.0) -> TimedCopy:
    return TimedCopy(direction, HostMemory.PINNED, 64 * MIB, steady(1e-3), other, kept, other_kept)


MEASURED = Measurements(
    rates=DeviceRates(
        ElementType.FLOAT32, Rate(steady(2.0), 10**12, "a product"), Rate(steady(0.5), 10**12, "a stream")
    ),
    link=(
        *(alone(direction, memory, nbytes) for direction in Direction for memory in HostMemory for nbytes in SIZES),
        beside(Direction.H2D, OTHER_DIRECTION, 0.8),
        beside(Direction.D2H, OTHER_DIRECTION, 0.6),
        beside(Direction.H2D, MORE_STREAMS[1], 0.51),
        beside(Direction.H2D, MATRIX_PRODUCT, 1.02, 0.9),
    ),
    host=HostCosts(
        *(steady(6e-6), steady(9e-6), steady(3e-6), steady(2e-6)), tuple((n, steady(1e-3 + n / 1e9)) for n in SIZES)
    ),
)


class _Gpu(FakeDevice):
    torch_device = torch.device("cuda", 0)


def machine(measured: Measurements, device: FakeDevice | None = None) -> MeasuredMachine:
    return machine_of(device or FakeDevice(), measured, "a link")


def figure(stated: MeasuredMachine, path: str) -> Figure:
    return next(each for each in stated.figures if each.path == path)


def test_figures_are_what_was_measured_steadily() -> None:
    """10^12 FLOP in 2 s, 10^12 B in 1/2 s. One latency, the mean of 10 and 20 us. Fractions are means: (0.8 + 0.6) / 2.

    A copy that is faster beside other work keeps all of its rate; what is missing is None. Of the host, kernels take
    6 us, copies 9, events 3 and allocations 2, and pinning is the line 1 ms + n / 1 GB/s.
    """
    found = machine(MEASURED)
    gpu, link, host = found.gpu, found.link, found.host
    assert (gpu.name, gpu.memory_bytes, gpu.granule_bytes) == ("Fake", 2**30, 512)
    assert (gpu.flop_per_s, gpu.dram_bytes_per_s) == ({ElementType.FLOAT32: 0.5e12}, 2e12)
    assert link.latency_s == pytest.approx(15e-6, rel=1e-3)
    rates = link.h2d_bytes_per_s, link.d2h_bytes_per_s, link.pageable_h2d_bytes_per_s
    assert rates == pytest.approx((50e9, 40e9, 5e9), rel=1e-3)
    assert link.both_directions_fraction == pytest.approx(0.7)
    assert (link.beside_compute_fraction, link.beside_memory_bound_fraction) == (1.0, None)
    assert (host.issue_s, host.pin_latency_s, host.pin_bytes_per_s) == pytest.approx((6e-6, 1e-3, 1e9))
    assert (host.issue_copy_s, host.issue_event_s, host.allocation_s) == pytest.approx((9e-6, 3e-6, 2e-6))
    # The number is what the text says, to the last bit.
    found = machine(replace(MEASURED, host=replace(MEASURED.host, kernel=steady(7.4671e-6))))
    assert figure(found, "host.issue").text == "7.467 us"
    assert found.host.issue_s == 7.467 * 1e-6
    # An unsteady sample of a hundred times its time does not move it.
    first, *rest = MEASURED.link
    found = machine(replace(MEASURED, link=(replace(first, sample=unsteady(100 * first.sample.median)), *rest)))
    assert found.link.latency_s == pytest.approx(15e-6, rel=1e-3)
    assert "16.0 KiB to 1.00 GiB" in figure(found, "link.h2d").source


@pytest.mark.parametrize(("is_pretended", "origin"), [(False, Origin.MEASURED), (True, Origin.ASSUMED)])
def test_every_figure_says_how_it_was_found(*, is_pretended: bool, origin: Origin) -> None:
    """Of a pretended GPU nothing is measured: it has what it was given."""
    found = machine_of(FakeDevice(), MEASURED, "a link", is_pretended=is_pretended)
    begin = "on a pretended GPU: " if is_pretended else ""
    assert {each.origin for each in found.figures} == {origin}
    assert all(each.source.startswith(begin) for each in found.figures)
    assert figure(found, "gpu.peak.float32").source == f"{begin}a product, median of 10 runs, spread 1 %"
    assert "off by" in figure(found, "link.h2d").source
    assert "2 streams at once carry 1.02 times as much" in figure(found, "link.h2d").source
    assert "h2d 80 % beside a copy in the other direction" in figure(found, "link.both_directions").source


def test_unsteady_required_figure_is_refused_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU it is used, and its source says how far it spreads."""
    measured = replace(MEASURED, rates=replace(MEASURED.rates, product=Rate(unsteady(2.0), 10**12, "a product")))
    assert figure(machine(measured), "gpu.peak.float32").source == "a product, median of 10 runs, spread 40 %"
    monkeypatch.setattr(
        "torch.cuda.get_device_properties", lambda _: pytest.fail("a figure before this one is refused")
    )
    with pytest.raises(DeviceError, match=r"^gpu\.peak\.float32: median of 10 runs, spread 40 %, expected at most 25"):
        machine(measured, _Gpu())


def test_copy_table_has_every_measurement_and_marks_unsteady_ones() -> None:
    """Ten sizes of four kinds alone, of which the first is unsteady, and four beside other work."""
    first, *rest = MEASURED.link
    rows = [each.row for each in (replace(first, sample=unsteady(1.0)), *rest)]
    assert len(rows) == 4 * 10 + 4
    assert rows[0] == CopyRow(Direction.H2D, HostMemory.PINNED, "", 4096, 1.0, 0.4, 10, "spreads too much to be used")
    assert rows[-1] == CopyRow(Direction.H2D, HostMemory.PINNED, MATRIX_PRODUCT, 64 * MIB, 1e-3, 0.01, 10, "")
    assert [row.note for row in rows[1:]] == [""] * 43


@given(latency_s=st.floats(1e-7, 1e-3), bytes_per_s=st.floats(1e8, 1e12))
def test_times_on_a_line_give_the_line(latency_s: float, bytes_per_s: float) -> None:
    line = fit_line([(nbytes, latency_s + nbytes / bytes_per_s) for nbytes in SIZES])
    assert line.latency_s == pytest.approx(latency_s, rel=1e-5, abs=1e-12)
    assert line.bytes_per_s == pytest.approx(bytes_per_s, rel=1e-5)
    assert line.worst == pytest.approx(0, abs=1e-6)


def test_errors_are_relative_and_neither_latency_nor_rate_is_negative() -> None:
    """One size, times 1 and 3 s: (b - 1)^2 + (b/3 - 1)^2 is least at b = (1 + 1/3) / (1 + 1/9) = 1.2, not at 2.

    Relative errors are then 0.2 and 0.6, in the mean the root of (0.04 + 0.36) / 2. Times 1 and 4 for 1 and 2 bytes
    would meet the axis at -2; through 0, v = 1 and 1/2: b = 1.5 / 1.25. Times 2 and 1: only a latency, u = 1/2 and 1:
    a = 1.5 / 1.25.
    """
    line = fit_line([(1, 1.0), (1, 3.0)])
    assert (line.bytes_per_s, line.residual, line.worst) == pytest.approx((1 / 1.2, 0.2**0.5, 0.6))
    rising, falling = fit_line([(1, 1.0), (2, 4.0)]), fit_line([(1, 2.0), (2, 1.0)])
    assert (rising.latency_s, rising.bytes_per_s) == pytest.approx((0.0, 1.25 / 1.5))
    assert (falling.latency_s, falling.bytes_per_s) == pytest.approx((1.2, 1e15))
