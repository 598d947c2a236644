"""Memory snapshots of `vdnnsim run`, read by PyTorch's own tools."""

import pickle
from typing import Any

import pytest
from torch.cuda import _memory_viz

from tests.unit.report.test_snapshot import run_of
from vdnnsim.memory.choices import memory_choice
from vdnnsim.report.run.snapshot import snapshot_pickle


@pytest.mark.parametrize("words", ["", "expandable_segments:True"])
def test_pytorchs_tools_show_what_a_run_wrote(words: str) -> None:
    """Its summary of segments, and its list of allocations and frees, which fails at an unknown address."""
    result = run_of(memory_choice(f"pytorch({words})"))
    content: Any = pickle.loads(snapshot_pickle(result, result.results))  # noqa: S301  # our own
    actions = [event["action"] for event in content["device_traces"][0]]
    assert "segments >= " in _memory_viz.segsum(content)  # type: ignore[no-untyped-call]
    program = _memory_viz.trace(content)  # type: ignore[no-untyped-call]
    assert program.count("# free completed for") == actions.count("free_completed") > 0
    assert program.count(" = cudaMalloc(") == actions.count("segment_alloc")
