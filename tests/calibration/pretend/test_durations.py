"""Operators on tensors without data, `meta`, of which PyTorch knows shapes as it does on a GPU; times by hand."""

from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
import torch
from torch.nn import functional

from calibration.capture.cuda.recurrent import recurrent_work
from calibration.pretend.inside.driver import Driver
from calibration.pretend.inside.durations import OperatorTimes, Rates
from tests.toy import server_with
from vdnnsim.cost.recurrent import recurrent_cost
from vdnnsim.cost.roofline import RooflineCosts
from vdnnsim.units import ElementType

RATES = Rates(
    convolution_flop_per_s={"float32": 2e12, "tf32": 4e12, "float16": 8e12},
    product_flop_per_s={"float32": 1e12, "tf32": 4e12, "float16": 16e12},
    dram_bytes_per_s=1e9,
    kernel_overhead_s=1e-6,
)


class FakeDriver:
    """Counts one launch for each operator that is begun, and adds up the work."""

    def __init__(self, launches: int = 1) -> None:
        self._each, self._launches = launches, 0
        self.worked_s = 0.0

    def launches(self) -> int:
        return self._launches

    def begin_operator(self) -> None:
        self._launches += self._each

    def end_operator(self) -> None:
        pass

    def work(self, device: torch.device, seconds: float) -> None:
        assert device.type == "meta"
        self.worked_s += seconds


@pytest.fixture
def driver() -> FakeDriver:
    return FakeDriver()


def timed(driver: FakeDriver) -> OperatorTimes:
    return OperatorTimes(RATES, cast("Driver", driver))


def empty(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, device="meta", dtype=dtype)


def test_a_product_lasts_as_its_arithmetic_or_its_bytes(driver: FakeDriver) -> None:
    """2 x 1000^3 FLOPs at 1 TFLOP/s are 2 ms; three matrices of 4 MB at 1 GB/s are 12 ms, and a launch 1 us."""
    a, b = empty(1000, 1000), empty(1000, 1000)
    with timed(driver) as times:
        torch.mm(a, b)
    assert driver.worked_s == pytest.approx(0.012 + 1e-6)
    assert times.seconds == {"mm": pytest.approx(0.012 + 1e-6)}


def test_a_narrow_type_computes_at_its_own_rate(driver: FakeDriver) -> None:
    """2 x 10^4 x 10^4 x 10^4 FLOPs at 16 TFLOP/s are 125 ms, though 3 x 200 MB at 1 GB/s take 600."""
    fast = Rates({"float32": 1.0}, {"float32": 1.0, "float16": 16e12}, 1e12, 0.0)
    a = empty(10_000, 10_000, dtype=torch.float16)
    with OperatorTimes(fast, cast("Driver", driver)):
        torch.mm(a, a)
    assert driver.worked_s == pytest.approx(0.125)


def test_a_convolution_may_compute_in_tf32(driver: FakeDriver) -> None:
    """By default it may in cuDNN: 2 x 8 x 64 x 64 x 9 x 30 x 30 FLOPs at 4 TFLOP/s, without DRAM and overhead."""
    rates = Rates({"float32": 1e12, "tf32": 4e12}, {"float32": 1.0}, 1e18, 0.0)
    with OperatorTimes(rates, cast("Driver", driver)), torch.no_grad():
        torch.nn.functional.conv2d(empty(8, 64, 32, 32), empty(64, 64, 3, 3))
    assert driver.worked_s == pytest.approx(2 * 8 * 64 * 64 * 9 * 30 * 30 / 4e12)


@pytest.mark.parametrize(
    ("work", "operands", "nbytes"),
    [
        # In place: 1,000 floats read, another 1,000 read, 1,000 written.
        (torch.Tensor.add_, (empty(1000), empty(1000)), 12_000),
        # Only written.
        (torch.Tensor.zero_, (empty(1000),), 4000),
        # 10 rows of 100 floats are read and written, and 10 indices of 8 B are read, of 4 MB.
        (functional.embedding, (empty(10, dtype=torch.int64), empty(10_000, 100)), 8080),
        # One float that is expanded to 1,000 is 4 B; 4,000 B are written.
        (torch.neg, (empty(1).expand(1000),), 4004),
        # Lists, as optimizers have them: two of 1,000 floats, read and written, and two that are added.
        (torch._foreach_add_, 2 * ([empty(1000), empty(1000)],), 24_000),
    ],
)
def test_an_operator_lasts_as_its_bytes(
    driver: FakeDriver, work: Callable[..., object], operands: tuple[object, ...], nbytes: int
) -> None:
    """At 1 GB/s, and a launch of 1 us."""
    with timed(driver):
        work(*operands)
    assert driver.worked_s == pytest.approx(nbytes * 1e-9 + 1e-6)


def test_view_takes_no_time() -> None:
    driver = FakeDriver(launches=0)
    with timed(driver) as times:
        empty(1000).view(10, 100).t()
    assert (driver.worked_s, times.seconds) == (0.0, {})


def test_copies_between_host_and_device_are_left_to_the_runtime(driver: FakeDriver) -> None:
    with timed(driver) as times:
        torch.empty(1000).to("meta")
        torch.ones(10).add_(1)
    assert times.seconds == {}


@pytest.mark.parametrize("options", [{"num_layers": 3}, {"num_layers": 2, "bidirectional": True}, {"proj_size": 3}])
@pytest.mark.parametrize("mask", [None, (True, False, False, False), (True, True, True, True)])
def test_recurrent_layers_last_as_in_a_replay(
    driver: FakeDriver, options: dict[str, int], mask: tuple[bool, ...] | None
) -> None:
    """5 steps of 4 sequences of 6 features, 8 cells, by `vdnnsim.cost.recurrent` on a GPU of the same rates in TF32.

    The operator adds its launch, which is the first of the chain.
    """
    names = {"hidden_size": 8, "proj_size": 0, "num_layers": 1, "bidirectional": False, **options}
    weights = [empty(*each.shape) for each in torch.nn.LSTM(6, **names).parameters()]
    given: dict[str, object] = {"input": empty(5, 4, 6), "weight": weights, "batch_first": False, "batch_sizes": []}
    given |= names if mask is None else {**names, "output_mask": mask}
    operator = getattr(torch.ops.aten, "_cudnn_rnn" if mask is None else "_cudnn_rnn_backward").default
    found = timed(driver)._seconds(operator, (), given, (), weights)  # noqa: SLF001 - `meta` has no cuDNN
    flop_per_s = {ElementType.FLOAT32: RATES.product_flop_per_s["tf32"]}
    server = server_with({"launch_overhead_s": RATES.kernel_overhead_s})
    server = replace(server, gpu=replace(server.gpu, flop_per_s=flop_per_s, dram_bytes_per_s=RATES.dram_bytes_per_s))
    work = recurrent_work(given, is_backward=mask is not None)
    expected_s = recurrent_cost(RooflineCosts(server), ElementType.FLOAT32, work).seconds
    assert found + RATES.kernel_overhead_s == pytest.approx(expected_s)
