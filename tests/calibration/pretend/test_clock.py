import ctypes
import threading
import time
from collections.abc import Iterator

import pytest

from calibration.pretend.inside.clock import follow_virtual_clock
from tests.pretend.controls import Controls
from vdnnsim.errors import DeviceError

CLOCKS = ("perf_counter", "perf_counter_ns", "time", "time_ns", "sleep", "monotonic")


class Runtime:
    def __init__(self) -> None:
        self.now_ns = 5_000_000_000

        def spend(seconds: float) -> None:
            self.now_ns += round(seconds * 1e9)

        self.pretend_clock_ns = lambda: self.now_ns
        self.pretend_spend = spend


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    """Follow a virtual clock until the test ends."""
    for name in CLOCKS:
        monkeypatch.setattr(time, name, getattr(time, name))
    runtime = Runtime()
    monkeypatch.setattr(ctypes, "CDLL", lambda _: runtime)
    follow_virtual_clock()
    yield runtime
    monkeypatch.undo()


def test_without_a_pretended_gpu_the_clocks_stay() -> None:
    before = [getattr(time, name) for name in CLOCKS]
    follow_virtual_clock()
    assert [getattr(time, name) for name in CLOCKS] == before


def test_clocks_move_with_the_gpus_and_by_what_a_reading_takes(runtime: Runtime) -> None:
    """Between two readings the GPU's clock moves by 3 s; the second reading itself takes 100 ns."""
    counter, date = time.perf_counter_ns(), time.time_ns()
    runtime.now_ns += 3_000_000_000
    assert time.time_ns() - date == 3_000_000_100
    assert time.perf_counter_ns() - counter == 3_000_000_300, "three readings since"
    assert time.perf_counter() == pytest.approx(time.perf_counter_ns() / 1e9, abs=1e-6)
    assert time.time() == pytest.approx(time.time_ns() / 1e9, abs=1e-5)


def test_the_clock_of_timeouts_stays_real(runtime: Runtime) -> None:
    begin = time.monotonic()
    runtime.now_ns += 10**15
    assert time.monotonic() - begin < 60


def test_only_sleep_of_the_main_thread_counts(runtime: Runtime) -> None:
    before = runtime.now_ns
    time.sleep(0.002)
    assert runtime.now_ns - before == 2_000_000
    other = threading.Thread(target=time.sleep, args=(0.002,))
    other.start()
    other.join()
    assert runtime.now_ns - before == 2_000_000


def test_a_process_without_a_pretended_gpu_has_no_controls() -> None:
    if hasattr(ctypes.CDLL(None), "pretend_clock_ns"):
        pytest.skip("this process has a pretended GPU")
    with pytest.raises(DeviceError, match="no GPU is pretended"):
        Controls()
