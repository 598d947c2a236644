"""Pictures and traces of a captured rank, one of two."""

from dataclasses import replace

import pytest

from tests.captured_steps import sharded
from tests.toy import server_with
from tests.two_gpus import PEERED
from vdnnsim.analysis.results import PolicyResult
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.operations import Stream
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.report.plots.iteration.timeline import trace_bars
from vdnnsim.report.run.perfetto import operation_text
from vdnnsim.scenario.simulator import Simulator

ROWS: dict[Stream | None, float] = {Stream.COMPUTE: 2.0, Stream.MEMORY: 0.0, Stream.COMMUNICATION: 1.0, None: 3.0}


@pytest.fixture(scope="module")
def row() -> PolicyResult:
    server = replace(server_with({"launch_overhead_s": 1.0}), topology=PEERED)
    simulator = Simulator.of(CapturedWorkload.of(sharded()), server, MemoryModel.IDEAL, PinnedMemory.ARENA)
    (result,) = simulator.run(PyTorch(), simulator.oracle())
    return result


def test_the_communication_stream_shows_collectives_and_their_copies(row: PolicyResult) -> None:
    """Two gathers, each behind a copy into its buffer, and two reductions; what waits for them has their colour."""
    bars = trace_bars(row.trace, ROWS)

    communication = [each for each in bars if each.row == ROWS[Stream.COMMUNICATION]]
    texts = [each.text for each in communication]
    assert texts == ["copy", "all gather", "copy", "all gather", "reduce scatter", "reduce scatter"]
    stalls = {each.look.color for each in bars if each.row == ROWS[None]}
    assert stalls == {communication[0].look.color}


def test_a_collective_is_named_with_its_ranks(row: PolicyResult) -> None:
    plan = row.trace.plan
    found = [operation_text(plan, span.operation) for span in row.trace.spans_on(Stream.COMMUNICATION)]

    assert found[:2] == ["copy for communication in forward of fc1", "all_gather of 2 ranks in forward of fc1"]
