import json
from dataclasses import replace
from typing import Any

from tests.nested import changed
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.plans.operations import Offload
from vdnnsim.plans.trace import Stall, StallCause
from vdnnsim.report.run.perfetto import perfetto_text


def events(result: ScenarioResult, row: PolicyResult) -> list[dict[str, Any]]:
    content: dict[str, list[dict[str, Any]]] = json.loads(perfetto_text(result, (row,)))
    return content["traceEvents"]


def test_metadata_of_a_trace(result: ScenarioResult, keep: PolicyResult, move: PolicyResult) -> None:
    assert json.loads(perfetto_text(result, (keep,)))["otherData"] == {
        "scenario": "question",
        "network": "toy",
        "batch_size": 1,
        "policy": "keep(p)",
        "algorithms": "p",
        "fits": False,
        "gpu_memory_bytes": 1000,
    }
    # Streams are tracks.
    names = {
        (each["name"], each["tid"]): each["args"]["name"]
        for each in events(result, move)
        if each["ph"] == "M" and each["name"] != "thread_sort_index"
    }
    assert names == {
        ("process_name", 0): "GPU 0: toy GPU, move(m)",
        ("thread_name", 1): "compute stream",
        ("thread_name", 2): "memory stream",
        ("thread_name", 3): "stalls",
    }


def test_kernels_copies_and_stalls_are_slices_in_microseconds(result: ScenarioResult, move: PolicyResult) -> None:
    slices = [each for each in events(result, move) if each["ph"] == "X"]
    assert [(each["tid"], each["name"], each["ts"], each["dur"]) for each in slices] == [
        (1, "forward of conv1 (gemm)", 0.0, 1e6),
        (1, "forward of fc", 3e6, 1e6),
        (1, "backward weights of fc", 4e6, 1e6),
        (1, "backward weights of conv1 (fft)", 7e6, 1e6),
        (2, "offload of map input during forward of conv1", 0.0, 3e6),
        (2, "fetch on demand of map input during backward of conv1", 5e6, 2e6),
        (3, "waits for an offload", 1e6, 2e6),
        (3, "waits for a fetch on demand", 5e6, 2e6),
    ]
    assert slices[0]["args"] == {"issued_us": 0.0}
    assert slices[4]["args"] == {"issued_us": 0.0, "bytes": 10}
    assert slices[6]["args"] == {
        "blocked": "forward of fc",
        "waited_for": "offload of map input during forward of conv1",
    }


def test_a_copy_of_some_bytes_says_which(result: ScenarioResult, move: PolicyResult) -> None:
    planned = move.trace.plan.operations
    operations = tuple(replace(each, extent=range(6, 10)) if isinstance(each, Offload) else each for each in planned)
    row = changed(move, "trace.plan", operations=operations)
    slices = {each["name"]: each["args"] for each in events(result, row) if each["ph"] == "X"}
    text = "offload of bytes 6 to 9 of map input during forward of conv1"
    assert slices[text] == {"issued_us": 0.0, "bytes": 4}
    assert slices["waits for an offload"]["waited_for"] == text
    # Memory is a counter by kind and in all.
    counters = [each for each in events(result, move) if each["ph"] == "C"]
    totals = [(each["ts"], each["args"]["total"]) for each in counters if "total" in each["args"]]
    assert totals == [(0.0, 30), (3e6, 20), (5e6, 30), (7e6, 60), (8e6, 0)]
    kinds = [each["args"] for each in counters if "total" not in each["args"]]
    assert kinds[3] == {"activations": 10, "weights": 20, "workspace": 30}


def test_neighbours_never_overlap_by_rounding(result: ScenarioResult, keep: PolicyResult) -> None:
    """0.6 ns and 1.2 ns round to 1 ns each; the length of 0.6 ns, rounded by itself, would be 1 ns too long."""
    spans = tuple(
        replace(span, start_s=start_s, end_s=end_s)
        for span, (start_s, end_s) in zip(keep.trace.spans, ((0.0, 0.6e-9), (0.6e-9, 1.2e-9)), strict=False)
    )
    short = events(result, changed(keep, "trace", spans=spans))
    slices = [(each["ts"], each["dur"]) for each in short if each["ph"] == "X"]
    assert slices == [(0.0, 0.001), (0.001, 0.0)]


def test_a_prefetch_ahead_and_a_wait_for_the_host(result: ScenarioResult, ahead: PolicyResult) -> None:
    row = changed(ahead, "trace", stalls=(Stall(5.0, 7.0, StallCause.HOST, 10, None),))
    slices = [each for each in events(result, row) if each["ph"] == "X"]
    assert slices[5]["name"] == "prefetch of map input during backward of conv1"
    assert slices[6]["args"] == {"blocked": "backward weights of conv1 (fft)"}
