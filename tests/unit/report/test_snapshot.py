"""Memory snapshots that a run writes: readable by memory_viz, and replayed by `read` to the same peaks."""

import pickle
import pickletools
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pytest

from tests.captured_steps import chain
from tests.machines import shipped_server
from tests.nested import changed
from tests.unit.plans.test_workspaces import BOTH, with_convolutions, work
from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryChoice, MemoryModel, PinnedMemory, memory_choice
from vdnnsim.memory.settings import AllocatorSettings, parse_settings
from vdnnsim.policies.registry import known_policies, resolve_policy
from vdnnsim.recordings.snapshot import Action, Recording, read_recordings
from vdnnsim.recordings.snapshot_comparison import compare
from vdnnsim.recordings.snapshot_replay import Start, recorded_peaks, replay, start_of
from vdnnsim.report.run.folder import report_files, snapshot_names
from vdnnsim.report.run.page import page_text
from vdnnsim.report.run.snapshot import snapshot_pickle
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.units import MIB

VIEWER_KNOWS: Final = {
    *("PROTO", "FRAME", "MARK", "STOP", "MEMOIZE", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET"),
    *("NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "SHORT_BINUNICODE"),
    *("BINUNICODE", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "LIST", "DICT", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
    *("APPEND", "APPENDS", "SETITEM", "SETITEMS"),
}
"""Operations of pickles that MemoryViz.js of PyTorch carries out; on any other it stops."""

SETTINGS: Final = ("", "expandable_segments:True", "max_split_size_mb:20,roundup_power2_divisions:4")


def replayed(workload: Workload, server: Server, model: MemoryChoice, *policies: str) -> ScenarioResult:
    return run_scenario(
        Scenario(
            name="scenario",
            workload=workload,
            server=server,
            policies=tuple(resolve_policy(each, known_policies()) for each in policies),
            memory_model=model,
            pinned_memory=PinnedMemory.ARENA,
            sources=(),
        )
    )


def run_of(
    model: MemoryChoice, memory_bytes: int | None = None, *policies: str, network: str = "alexnet"
) -> ScenarioResult:
    server = shipped_server("titan_x_maxwell")
    if memory_bytes is not None:
        server = changed(server, "gpu", memory_bytes=memory_bytes)
    return replayed(Workload(build_network(network), 8), server, model, *(policies or ("pytorch(m)",)))


def run_of_captured(
    step: CapturedStep, model: MemoryChoice = MemoryModel.PYTORCH, memory_bytes: int | None = None
) -> ScenarioResult:
    """Replay a captured step on an A100, or on one with less memory beside its context."""
    server = shipped_server("a100_40gb")
    if memory_bytes is not None:
        server = changed(server, "gpu", memory_bytes=server.gpu.context_bytes + memory_bytes)
    return replayed(CapturedWorkload.of(step), server, model, "pytorch")


def read_back(result: ScenarioResult, folder: Path) -> tuple[Recording, Start, AllocatorSettings]:
    """What was written of the first policy, read again, and the settings that it states."""
    path = folder / "s.pickle"
    path.write_bytes(snapshot_pickle(result, result.by_policy[0]))
    (recording,) = read_recordings(path)
    settings = parse_settings(recording.settings)
    return recording, start_of(recording, settings, "s.pickle"), settings


def agrees(recording: Recording, start: Start, settings: AllocatorSettings) -> bool:
    """Whether each request goes to the address that it has in the recording."""
    agreement = compare(recording, start, settings)
    return agreement is not None and agreement.whole


@pytest.mark.parametrize(("words", "memory_bytes"), [*((words, None) for words in SETTINGS), ("", 300 * MIB)])
def test_written_snapshot_replays_to_the_same_peaks(tmp_path: Path, words: str, memory_bytes: int | None) -> None:
    """A plan that does not fit is written as with unlimited memory."""
    model = memory_choice(f"pytorch({words})")
    result = run_of(model, memory_bytes)
    (row,) = result.results
    assert row.fits is (memory_bytes is None)
    recording, start, settings = read_back(result, tmp_path)
    assert recording.settings == words
    assert start.requested == {}
    peaks = replay(recording, start, model).peaks
    assert (peaks.allocated_bytes, peaks.reserved_bytes) == (row.metrics.allocated_bytes, row.trace.pool_bytes)
    assert agrees(recording, start, settings)


def test_a_captured_step_is_written_as_often_as_it_is_placed(tmp_path: Path) -> None:
    """Three iterations, of which the first takes what stays: both workspaces of cuBLAS once, each output three times.

    What is read again reserves what the run does, and goes to the same addresses.
    """
    result = run_of_captured(chain())
    (row,) = result.results
    recording, start, settings = read_back(result, tmp_path)
    peaks = replay(recording, start, MemoryModel.PYTORCH).peaks
    assert (peaks.allocated_bytes, peaks.reserved_bytes) == (row.metrics.allocated_bytes, row.trace.pool_bytes)
    assert agrees(recording, start, settings)
    content: Any = pickle.loads(snapshot_pickle(result, result.results))  # noqa: S301  # our own
    taken = [each for each in content["device_traces"][0] if each["action"] == "alloc"]
    times = Counter(each["frames"][0]["name"] for each in taken)
    assert times["forward, workspace of cuBLAS for forward"] == 1
    assert times["forward, conv"] == 3
    assert [each["time_us"] for each in taken] == sorted(each["time_us"] for each in taken)


@pytest.mark.parametrize("memory_bytes", [None, 64 * MIB])
def test_searches_of_cudnn_are_written(tmp_path: Path, memory_bytes: int | None) -> None:
    """Three in the first iteration, each followed by `empty_cache`; the peak reserved is that of the run.

    Of 64 MiB so many are in use when backward searches that there is no segment of 32 left, but one of half as many.
    """
    step = with_convolutions(work(batch_size=640), work(*BOTH, batch_size=640))
    result = run_of_captured(step, memory_choice("pytorch(cudnn_benchmark:True)"), memory_bytes)
    (row,) = result.results
    recording, start, settings = read_back(result, tmp_path)
    assert row.fits
    assert row.trace.peaks_in_search is (memory_bytes is None)
    assert recording.settings == ""
    assert recorded_peaks(recording, start, settings).reserved_bytes == row.trace.pool_bytes
    content: Any = pickle.loads(snapshot_pickle(result, result.results))  # noqa: S301  # our own
    (events,) = content["device_traces"]
    searched = [at for at, each in enumerate(events) if "search for" in each["frames"][0]["name"]]
    names = [events[at]["action"] for at in searched]
    assert names.count("alloc") == 3
    assert names.count("segment_free") >= 3


@pytest.mark.parametrize("words", SETTINGS)
def test_the_viewer_reads_all_of_it(words: str) -> None:
    result = run_of(memory_choice(f"pytorch({words})"))
    data = snapshot_pickle(result, result.results)
    content: Any = pickle.loads(data)  # noqa: S301  # our own
    assert {operation.name for operation, _, _ in pickletools.genops(data)} <= VIEWER_KNOWS
    assert {"segments", "device_traces"} <= content.keys()
    (events,) = content["device_traces"]
    there: list[tuple[int, int]] = []
    for event in events:
        assert {"action", "addr", "size", "stream", "frames", "time_us"} == event.keys()
        start, end = event["addr"], event["addr"] + event["size"]
        if event["action"] in ("segment_alloc", "segment_map"):
            there.append((start, end))
        elif event["action"] == "alloc":
            assert any(low <= start < high for low, high in there)
    for segment in content["segments"]:
        reached = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == reached
            reached += block["size"]
        assert reached == segment["address"] + segment["total_size"]
    first = next(event for event in events if event["action"] == "alloc")
    (frame,) = first["frames"]
    assert frame["filename"] in result.results[0].trace.plan.layers
    assert frame["name"].startswith("forward, ")


@pytest.mark.parametrize(
    ("words", "memory_mib", "action"),
    [("", 280, Action.SEGMENT_GIVEN_BACK), ("expandable_segments:True", 268, Action.PAGES_UNMAPPED)],
)
def test_segments_freed_to_make_room_are_written(tmp_path: Path, words: str, memory_mib: int, action: Action) -> None:
    """ResNet-18 reserves 334 and 272 MiB of unlimited memory; with less, segments are freed and allocated again."""
    result = run_of(memory_choice(f"pytorch({words})"), memory_mib * MIB, network="resnet18")
    (row,) = result.results
    assert row.fits
    recording, start, settings = read_back(result, tmp_path)
    assert action in {each.action for each in recording.events}
    assert recorded_peaks(recording, start, settings).reserved_bytes == row.trace.pool_bytes
    assert agrees(recording, start, settings)


def test_snapshots_are_written_under_pytorchs_allocator_and_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vdnnsim.report.plots.draw_pictures", lambda _: ())
    growing = run_of(memory_choice("pytorch(expandable_segments:True)"), None, "pytorch(m)", "vdnn_all(m)")
    assert snapshot_names(growing) == ("snapshot_pytorch_m.pickle", "snapshot_vdnn_all_m.pickle")
    assert set(snapshot_names(growing)) <= report_files(growing).keys()
    assert "snapshot_pytorch_m.pickle: PyTorch's allocator, to open at https" in page_text(
        growing, {}, (), snapshot_names(growing)
    ).replace("\\", "")
    assert snapshot_names(run_of(MemoryModel.IDEAL)) == ()
