"""Published snapshots replayed: every address and every segment of PyTorch's allocator.

Each file of `published` restates sizes and offsets of one snapshot, one a line, numbers in base 16, addresses and sizes
of segments and blocks in units of 512 B, requests in bytes. First the end: `s ADDRESS SIZE POOL [STREAM]`, a segment;
`b ADDRESS SIZE REQUESTED`, a block in use in it. Then the history: `a ADDRESS REQUESTED [STREAM]` and `f ADDRESS`, a
request and a free, with `REQUESTED [STREAM]` if the request was made before; `t ADDRESS SIZE [STREAM]` and `g`, a
segment taken or freed. `= BACK COUNT`, in base 10, repeats COUNT lines from BACK lines before.
"""

from pathlib import Path

import pytest

from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.settings import DEFAULTS
from vdnnsim.recordings.snapshot import Action, Event, HeldBlock, HeldSegment, Recording
from vdnnsim.recordings.snapshot_comparison import compare
from vdnnsim.recordings.snapshot_replay import recorded_peaks, replay, start_of

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
