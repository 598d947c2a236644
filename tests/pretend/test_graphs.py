"""CUDA graphs: work that is recorded, done at each launch, in memory of its own pool."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tests.pretended_gpu import free_cache, setting
from vdnnsim.units import MIB

pytestmark = pytest.mark.pretend


def test_a_graph_copies_at_each_launch_and_not_before() -> None:
    given = torch.zeros(4, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = given.clone()
    given.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert made.tolist() == [0, 0, 0, 0]
    for factor in (1, 2):
        given.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]) * factor)
        graph.replay()
        assert made.tolist() == [factor, 2 * factor, 3 * factor, 4 * factor]


def test_a_launch_lasts_as_long_as_the_work_of_all_its_streams() -> None:
    """Two fills, one of them on a stream that joined, last as long as one after the other outside of a graph."""
    first, second = (torch.empty(256 * MIB, dtype=torch.uint8, device="cuda") for _ in range(2))
    graph, beside = torch.cuda.CUDAGraph(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.graph(graph):
        first.zero_()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            second.zero_()
        torch.cuda.current_stream().wait_stream(beside)

    def both() -> None:
        first.zero_()
        second.zero_()

    assert _lasts(graph.replay) == pytest.approx(_lasts(both), abs=0.01)
    assert _lasts(graph.replay) > 2e3 * 256 * MIB / setting("DRAM_BYTES_PER_S")


def _lasts(work: Callable[[], None]) -> float:
    """Return the milliseconds of work, which the host issues in much less."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    work()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))


def test_memory_of_a_graph_is_its_own_until_it_goes() -> None:
    free_cache()
    before = torch.cuda.memory_reserved()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = torch.zeros(64 * MIB, dtype=torch.uint8, device="cuda")
    del made
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == before + 64 * MIB
    del graph
    free_cache()
    assert torch.cuda.memory_reserved() == before


def test_a_stream_that_records_is_not_waited_for() -> None:
    given = torch.zeros(4, device="cuda")
    with (
        pytest.raises(RuntimeError, match="not permitted when stream is capturing"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        given.sum().item()
    assert given.tolist() == [0, 0, 0, 0]


@pytest.mark.filterwarnings("ignore:dynamo_pgo force disabled", "ignore:The CUDA Graph is empty")
def test_torch_compile_with_little_overhead_has_a_pool_of_its_own() -> None:
    """Two forwards to warm up and record, then launches alone: nothing more is reserved."""
    free_cache()
    model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)).cuda()
    layer = torch.compile(model, mode="reduce-overhead")
    reserved = []
    for _ in range(5):
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        layer(torch.randn(64, 256, device="cuda")).sum().backward()
        model.zero_grad()
        reserved.append(torch.cuda.memory_reserved())
    pools = {each["segment_pool_id"] for each in torch.cuda.memory_snapshot()}  # type: ignore[no-untyped-call]
    assert len(pools) > 1
    assert len(set(reserved[2:])) == 1
