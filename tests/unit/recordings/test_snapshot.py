"""Formats of memory snapshots, old and new, and other files; published ones replayed, every address and segment.

Each file of `published` restates sizes and offsets of one snapshot, one a line, numbers in base 16, addresses and sizes
of segments and blocks in units of 512 B, requests in bytes. First the end: `s ADDRESS SIZE POOL [STREAM]`, a segment;
`b ADDRESS SIZE REQUESTED`, a block in use in it. Then the history: `a ADDRESS REQUESTED [STREAM]` and `f ADDRESS`, a
request and a free, with `REQUESTED [STREAM]` if the request was made before; `t ADDRESS SIZE [STREAM]` and `g`, a
segment taken or freed. `= BACK COUNT`, in base 10, repeats COUNT lines from BACK lines before.
"""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.refusals import refusal
from tests.unit.recordings.snapshots import HIGH, LOW, WHOLE, block, event, freed, segment, snapshot, written
from vdnnsim.errors import RecordingError
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.settings import DEFAULTS
from vdnnsim.recordings.snapshot import Action, Event, HeldBlock, HeldSegment, Recording, read_recordings
from vdnnsim.recordings.snapshot_comparison import compare
from vdnnsim.recordings.snapshot_replay import recorded_peaks, replay, start_of
from vdnnsim.units import MIB


def read(tmp_path: Path, content: object) -> tuple[Recording, ...]:
    return read_recordings(written(tmp_path, content))


def test_segments_blocks_in_use_and_events_are_read(tmp_path: Path) -> None:
    """Segments come from the lowest on; free blocks only say where the next one lies."""
    (recording,) = read(tmp_path, WHOLE)

    assert recording.segments == (
        HeldSegment(LOW, 30 * MIB, 0, small=False, blocks=(HeldBlock(LOW, 30 * MIB, 30 * MIB),)),
        HeldSegment(HIGH, 20 * MIB, 0, small=False, blocks=(HeldBlock(HIGH + 8 * MIB, 9 * MIB, 9 * MIB),)),
    )
    assert recording.events[:2] == (
        Event(Action.SEGMENT_TAKEN, HIGH, 20 * MIB, 0),
        Event(Action.ALLOCATE, HIGH, 8 * MIB, 0),
    )
    assert len(recording.events) == 7
    assert (recording.gpu, recording.settings, recording.expandable, recording.private_pools) == (0, "", False, False)


@pytest.mark.parametrize(
    ("made", "requested"),
    [
        ({"requested_size": 700}, 700),
        ({"history": [{"addr": LOW, "real_size": 600, "frames": []}]}, 600),
        ({"history": []}, MIB),
        ({}, MIB),
    ],
)
def test_requested_bytes_in_old_snapshots(tmp_path: Path, made: dict[str, Any], requested: int) -> None:
    held = {"size": MIB, "state": "active_pending_free", **made}
    (recording,) = read(tmp_path, [segment(LOW, held, kind="small")])
    assert recording.segments[0].blocks == (HeldBlock(LOW, MIB, requested),)
    assert recording.segments[0].small
    assert recording.events == ()


def test_gpus_streams_pools_settings_and_unknown_events(tmp_path: Path) -> None:
    """GPU 0 has neither segments nor events, GPU 2 segments alone. Streams and pools are numbered in their order."""
    content = snapshot(
        [
            segment(LOW, block(2), gpu=1, stream=77, kind="small", segment_pool_id=(0, 1), is_expandable=True),
            segment(HIGH, block(20), gpu=2),
        ],
        [],
        [
            event("alloc", LOW, 2, stream=77, pool_id=(0, 1)),
            event("user_defined", 0, 0),
            {"action": "oom", "device_free": 5, "size": 30 * MIB, "stream": 0, "frames": []},
            event("worked", 0, 0),
            event("worked", 0, 0),
        ],
        allocator_settings={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "max_split_size": -1},
    )

    first, second = read(tmp_path, content)

    assert (first.gpu, second.gpu) == (1, 2)
    assert first.events == (Event(Action.ALLOCATE, LOW, 2 * MIB, 1), Event(Action.REFUSED, 0, 30 * MIB, 0))
    assert first.segments[0].stream == 1
    assert (first.expandable, first.private_pools, first.unknown) == (True, True, (("worked", 2),))
    assert first.settings == "expandable_segments:True"
    assert read(tmp_path, {**WHOLE, "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": 3}})[0].settings == ""
    assert (second.events, second.expandable) == ((), False)


def changed(change: Callable[[Any], object]) -> object:
    content = pickle.loads(pickle.dumps(WHOLE))  # noqa: S301  # our own
    change(content)
    return content


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"state": {}}, "object missing required field `segments`"),
        ("text", "expected `object`, got `str`"),
        ({"segments": 3, "device_traces": []}, "expected `array`, got `int` - at `$.segments`"),
        ([3], "expected `object`, got `int` - at `$.segments[0]`"),
        (changed(lambda c: c["segments"][0].update(address=-1)), "expected `int` >= 0 - at `$.segments[0].address`"),
        (changed(lambda c: c["segments"][0].update(device=5000)), "expected `int` <= 1023 - at `$.segments[0].device`"),
        (changed(lambda c: c["segments"][0]["blocks"][0].update(state="x")), "expected `str` matching regex"),
        (changed(lambda c: c["segments"][0].update(segment_pool_id="x")), "expected `array`, got `str` - at"),
        (changed(lambda c: c["device_traces"][0][1].update(action=[])), "expected `str`, got `array` - at"),
    ],
)
def test_files_that_are_no_snapshot_are_refused_in_one_line(tmp_path: Path, content: object, message: str) -> None:
    assert f"s.pickle: is not a memory snapshot: {message}" in refusal(RecordingError, read, tmp_path, content)


def test_an_event_without_an_address_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match=r"device_traces\[0\]\[1\]: alloc without 'addr', expected one that"):
        read(tmp_path, changed(lambda c: c["device_traces"][0][1].pop("addr")))


@pytest.mark.parametrize(
    "content",
    [
        snapshot([], [event("alloc", LOW, 2**39), *freed(LOW, 2**39)]),
        snapshot([segment(LOW, {"size": 1, "requested_size": 2**59, "state": "active_allocated"})], []),
        snapshot([{**segment(LOW), "total_size": 2**59}], []),
    ],
)
def test_impossible_sizes_are_refused(tmp_path: Path, content: object) -> None:
    """2**39 MiB, and 2**59 B, are more than 2**58 B; a refused request may be of any size."""
    with pytest.raises(RecordingError, match="has sizes that no GPU 0 can have had"):
        read(tmp_path, content)
    assert read(tmp_path, snapshot([], [event("oom", 0, 2**40)]))


FOLDER = Path(__file__).parent / "published"
UNIT = 512


def expanded(lines: list[str]) -> list[str]:
    whole: list[str] = []
    for line in lines:
        if not line.startswith("="):
            whole.append(line)
            continue
        back, count = map(int, line.split()[1:])
        for _ in range(count):
            whole.append(whole[-back])
    return whole


def recording_of(path: Path) -> Recording:
    segments: list[HeldSegment] = []
    events: list[Event] = []
    live: dict[int, tuple[int, int]] = {}
    for line in expanded(path.read_text().splitlines()[1:]):
        kind, first, *rest = line.split()
        address = int(first, 16) * UNIT
        stream = int(rest[-1]) if len(rest) == {"s": 3, "a": 2, "f": 2, "t": 2, "g": 2}.get(kind) else 0
        if kind == "s":
            segments.append(HeldSegment(address, int(rest[0], 16) * UNIT, stream, rest[1] == "small", ()))
        elif kind == "b":
            block = HeldBlock(address, int(rest[0], 16) * UNIT, int(rest[1], 16))
            segments[-1] = segments[-1]._replace(blocks=(*segments[-1].blocks, block))
        elif kind == "a":
            live[address] = int(rest[0], 16), stream
            events.append(Event(Action.ALLOCATE, address, *live[address]))
        elif kind == "f":
            freed = live.pop(address, None) or (int(rest[0], 16), stream)
            events += [Event(each, address, *freed) for each in (Action.FREE_REQUESTED, Action.FREE_COMPLETED)]
        else:
            action = Action.SEGMENT_TAKEN if kind == "t" else Action.SEGMENT_GIVEN_BACK
            events.append(Event(action, address, int(rest[0], 16) * UNIT, stream))
    return Recording(0, tuple(segments), tuple(events))


PUBLISHED = (
    ("HugePanda__cuda_single_step", 2, 1),
    ("HugePanda__my_snapshot_e", 217, 20),
    ("Maphsge4__snapshot_b", 3058, 584),
    ("Wedsonlin__medium_128_inference_memory_snapshot", 1280, 0),
    ("Wedsonlin__medium_256_inference_memory_snapshot", 1280, 0),
    ("bcrafton__memory_snapshot", 295, 0),
    ("silmont2000__mem_snapshot", 36, 9),
    ("silmont2000__memory_forward_bf16_128", 937, 0),
    ("silmont2000__memory_forward_fp32_128", 681, 0),
)
"""Each file, how many requests it has, and how many segments were taken in it."""


@pytest.mark.parametrize(("name", "requests", "segments"), PUBLISHED)
def test_blocks_and_segments_lie_at_the_recorded_addresses(name: str, requests: int, segments: int) -> None:
    recording = recording_of(FOLDER / f"{name}.txt")
    agreement = compare(recording, start_of(recording, DEFAULTS, name), DEFAULTS)
    assert agreement is not None
    assert (agreement.requests, agreement.agreed) == (requests, requests)
    assert (agreement.segments, agreement.segments_agreed) == (segments, segments)
    assert agreement.whole


def test_a_run_of_several_streams_is_replayed_without_a_limit() -> None:
    """Ten streams; memory was so short that 579 segments were freed. Without a limit none is, so more is reserved."""
    recording = recording_of(FOLDER / "Maphsge4__snapshot_b.txt")
    start = start_of(recording, DEFAULTS, "snapshot_b")
    recorded = recorded_peaks(recording, start, DEFAULTS)
    peaks = replay(recording, start, MemoryModel.PYTORCH).peaks
    assert len({each.stream for each in recording.events}) == 10
    assert recorded.allocated_bytes <= recorded.reserved_bytes <= peaks.reserved_bytes
