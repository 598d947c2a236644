"""PyTorch's own caching allocator beside `memory_model: pytorch`, event by event, however it is set."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from calibration.pretend.inside.driver import Driver
from tests.pretend.conftest import AddRows
from tests.pretended_gpu import free_cache
from tests.pytorch_allocator.history import History, recorded
from tests.pytorch_allocator.model import GpuMemory
from tests.pytorch_allocator.random_traces import SETTINGS, RandomTrace, Sizes, random_traces
from tests.pytorch_allocator.twin import TRACE_COLUMNS, TraceOutcome, allocator_set, run_trace, trace_rows
from vdnnsim.memory.settings import DEFAULTS, AllocatorSettings, parse_settings
from vdnnsim.units import MIB

pytestmark = pytest.mark.pretend

LONG_S = 1000.0
"""Longer than any host waits here but for the work itself; the clock of the GPU moves with that."""


class ScarceGpu:
    """The pretended GPU, of which PyTorch holds nothing."""

    def __init__(self) -> None:
        self._driver = Driver()
        free_bytes, self._total_bytes = torch.cuda.mem_get_info()
        self._taken_bytes = self._total_bytes - free_bytes

    def offer(self, nbytes: int, settings: AllocatorSettings) -> GpuMemory:
        self._driver.set_memory_bytes(nbytes + self._taken_bytes)
        assert torch.cuda.mem_get_info()[0] == nbytes
        return GpuMemory(nbytes, nbytes + self._taken_bytes, settings)

    def occupy(self, stream: torch.cuda.Stream) -> None:
        with torch.cuda.stream(stream):
            self._driver.work(stream.device, LONG_S)

    def run(self, trace: RandomTrace, *, told: GpuMemory | None = None) -> TraceOutcome:
        """Run a trace; the model is told the truth, unless something else is said."""
        memory = self.offer(trace.memory_bytes, trace.settings)
        return run_trace(trace, 0, told or memory, self.occupy)

    def restore(self) -> None:
        self._driver.set_memory_bytes(self._total_bytes)


@pytest.fixture
def gpu() -> Iterator[ScarceGpu]:
    free_cache()
    assert torch.cuda.memory_reserved() == 0, "another test holds memory of the GPU"
    scarce = ScarceGpu()
    yield scarce
    scarce.restore()


@pytest.mark.slow
def test_random_traces_have_no_divergence(gpu: ScarceGpu, add_rows: AddRows) -> None:
    """10,000 events each. The traces are worth it only if memory ran out and streams were at work on blocks."""
    outcomes = [gpu.run(trace) for trace in random_traces(90, 10_000)]
    add_rows("random_traces.csv", TRACE_COLUMNS, trace_rows(outcomes))
    assert [each for each in outcomes if each.divergence is not None] == []
    assert [each.events for each in outcomes] == [10_000] * 90
    refused = {(each.trace.streams, each.trace.settings.words) for each in outcomes if each.refusals}
    assert refused == {(streams, words) for streams in (1, 4) for words in SETTINGS}
    assert all(each.waited for each in outcomes if each.trace.streams > 1)


TRACE = RandomTrace(Sizes.MIXED, seed=7, events=2000, memory_bytes=300 * MIB, streams=4, settings=DEFAULTS)


def test_a_trace_is_the_same_each_time(gpu: ScarceGpu) -> None:
    first, second = gpu.run(TRACE), gpu.run(TRACE)
    assert first == second
    assert first.divergence is None
    assert first.refusals
    assert first.waited


@pytest.mark.parametrize(
    "wrong",
    [
        {"free_bytes": 320 * MIB},
        {"granule_bytes": 1024},
        *({"settings": parse_settings(words)} for words in SETTINGS[1:]),
    ],
    ids=lambda each: getattr(each.get("settings"), "words", next(iter(each))),
)
def test_model_of_another_gpu_diverges(gpu: ScarceGpu, wrong: dict[str, Any]) -> None:
    """One with 20 MiB more keeps what PyTorch gives back, others round or reserve in other units."""
    memory = gpu.offer(TRACE.memory_bytes, DEFAULTS)
    assert gpu.run(TRACE, told=replace(memory, **wrong)).divergence is not None


@pytest.mark.parametrize("grow", [False, True])
def test_a_recorded_history_is_replayed_exactly(gpu: ScarceGpu, grow: bool) -> None:  # noqa: FBT001  # given by pytest
    """30 and 5 MiB, of which the 30 wait for another stream when they go; a request that is refused; 30 again.

    The refusal had PyTorch wait for the stream, so the 30 are back and their memory with the GPU.
    """
    settings = AllocatorSettings(expandable_segments=grow)
    memory = gpu.offer(100 * MIB, settings)
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def work() -> None:
        kept = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")
        used = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
        gpu.occupy(side)
        used.record_stream(side)
        del used
        with pytest.raises(torch.cuda.OutOfMemoryError):
            torch.empty(200 * MIB, dtype=torch.uint8, device="cuda")
        again = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
        del kept, again

    history = History(memory)
    with allocator_set(settings, 0, memory.total_bytes):
        _, entries = recorded(work, 0)
        history.replay(entries)
        history.beside.compare("reserved bytes", torch.cuda.memory_reserved(), history.beside.allocator.reserved_bytes)
        torch.cuda.empty_cache()

    assert history.beside.divergence is None
    assert (history.requests, history.beside.refusals) == (4, 1)
