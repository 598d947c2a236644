"""Snapshots worked out by hand: their start, the model of PyTorch's allocator beside them, other models; in MiB."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.recordings.snapshots import HIGH, LOW, WHOLE, block, event, freed, history, segment, snapshot, written
from vdnnsim.errors import RecordingError
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.online import Block
from vdnnsim.memory.settings import DEFAULTS, AllocatorSettings, parse_settings
from vdnnsim.recordings.snapshot import Recording, read_recordings
from vdnnsim.recordings.snapshot_comparison import Agreement, compare
from vdnnsim.recordings.snapshot_replay import Memory, Peaks, Start, StartSegment, recorded_peaks, replay, start_of
from vdnnsim.units import MIB

GROWING = AllocatorSettings(expandable_segments=True)


def recorded(tmp_path: Path, content: object, settings: AllocatorSettings = DEFAULTS) -> tuple[Recording, Start]:
    (recording,) = read_recordings(written(tmp_path, content))
    return recording, start_of(recording, settings, "s.pickle")


def whole(recording: Recording, start: Start, settings: AllocatorSettings = DEFAULTS) -> bool:
    agreement = compare(recording, start, settings)
    assert agreement is not None
    return agreement.whole


def test_histories_settings_and_repeated_frees(tmp_path: Path) -> None:
    recording, start = recorded(tmp_path, WHOLE)
    assert start == Start({}, {})
    assert compare(recording, start, DEFAULTS) == Agreement(3, 3, 2, 2, 39 * MIB, whole=True)
    assert recorded_peaks(recording, start, DEFAULTS) == Peaks(39 * MIB, 50 * MIB)
    # 30 in a segment of 40 that is not split have all of it; with two divisions 5 have 6.
    content = snapshot([segment(HIGH, block(40, "inactive"))], freed(HIGH, 30))
    _, uncut = recorded(tmp_path, content, parse_settings("max_split_size_mb:20"))
    content = snapshot([segment(HIGH, block(20, "inactive"))], freed(HIGH, 5))
    _, rounded = recorded(tmp_path, content, parse_settings("roundup_power2_divisions:2"))
    assert uncut.segments[HIGH].blocks == (Block(HIGH, 40 * MIB),)
    assert rounded.segments[HIGH].blocks == (Block(HIGH, 6 * MIB),)
    # 9 wait behind two requests to free them, while 5 more come: 14 in use, in 20.
    content = snapshot(
        [segment(HIGH, block(9, "inactive"), block(5), block(6, "inactive"))],
        history("free_requested HIGH 9; free_requested HIGH 9; alloc HIGH+9 5; free_completed HIGH 9"),
    )
    assert replay(*recorded(tmp_path, content), MemoryModel.PYTORCH).peaks.reserved_bytes == 20 * MIB


# At the end a segment of 20 with 5 in use at 15; before, 8 and 6.5 were freed that lay there at the beginning, 14.5 in
# all: the other 0.5, less than 1, belonged to the 6.5. And a small segment with two blocks in use was freed.
MIDDLE = snapshot(
    [segment(HIGH, block(15, "inactive"), block(5))],
    history("free HIGH 8; free HIGH+8 6.5; free LOW 0.5; free LOW+1 0.25; segment_free LOW 2"),
)


def test_a_history_that_begins_in_the_middle_is_undone_to_its_beginning(tmp_path: Path) -> None:
    """6.5 are followed by half a MiB, too little to be cut off: they had 7. In the small pool all is cut."""
    recording, start = recorded(tmp_path, MIDDLE)

    blocks = (Block(HIGH, 8 * MIB), Block(HIGH + 8 * MIB, 7 * MIB), Block(HIGH + 15 * MIB, 5 * MIB))
    small = (Block(LOW, MIB // 2), Block(LOW + MIB, MIB // 4))
    assert start.segments == {
        HIGH: StartSegment(20 * MIB, 0, small=False, blocks=blocks),
        LOW: StartSegment(2 * MIB, 0, small=True, blocks=small),
    }
    assert list(start.requested) == [LOW, LOW + MIB, HIGH, HIGH + 8 * MIB, HIGH + 15 * MIB]
    assert start.requested[HIGH + 8 * MIB] == (round(6.5 * MIB), 0)
    assert whole(recording, start)
    assert recorded_peaks(recording, start, DEFAULTS) == Peaks(round(20.25 * MIB), 22 * MIB)


@pytest.mark.parametrize(
    ("events", "place"),
    [
        *(("alloc LOW 5", 0), ("free HIGH+8 9", 1), ("segment_alloc LOW 20", 0), ("segment_free HIGH 20", 0)),
        ("free_requested HIGH 8", 0),
    ],
)
def test_a_history_that_contradicts_the_end_is_refused(tmp_path: Path, events: str, place: int) -> None:
    content = snapshot([segment(HIGH, block(8, "inactive"), block(9), block(3, "inactive"))], history(events))
    with pytest.raises(
        RecordingError, match=rf"^s\.pickle: device_traces\[0\]\[{place}\]: .* contradicts the memory after it"
    ):
        recorded(tmp_path, content)
    with pytest.raises(RecordingError, match=r"begins with 1 blocks in use, of which 0 lie in a segment"):
        recorded(tmp_path, snapshot([], freed(LOW, 9)))


@pytest.mark.parametrize(
    ("place", "other", "agreed", "segments"),
    [
        (2, event("alloc", HIGH + 10 * MIB, 9), 1, 1),
        (2, event("alloc", 0, 9), 1, 1),
        (0, event("segment_alloc", HIGH, 22), 0, 0),
        (5, event("segment_alloc", LOW, 32), 2, 1),
    ],
)
def test_other_rules_are_detected(
    tmp_path: Path, place: int, other: dict[str, Any], agreed: int, segments: int
) -> None:
    """A gap before the second block, and one where no segment is; segments of 22 for 8, and of 32 for 30."""
    (recording,) = read_recordings(written(tmp_path, WHOLE))
    (changed,) = read_recordings(written(tmp_path, snapshot([], [other])))
    events = list(recording.events)
    events[place] = changed.events[0]
    if place == 2:
        # A block elsewhere is not freed.
        events = events[:3]
    agreement = compare(Recording(0, recording.segments, tuple(events)), Start({}, {}), DEFAULTS)

    assert agreement is not None
    assert (agreement.agreed, agreement.segments_agreed, agreement.whole) == (agreed, segments, False)


def test_a_segment_freed_while_in_use_is_detected(tmp_path: Path) -> None:
    (recording,) = read_recordings(written(tmp_path, WHOLE))
    (gone,) = read_recordings(written(tmp_path, snapshot([], [event("segment_free", HIGH, 20)])))
    events = (*recording.events[:3], *gone.events)
    assert not whole(Recording(0, recording.segments, events), Start({}, {}))
    # 30 and their segment are freed before 30 more get a new one at another place.
    content = snapshot(
        [segment(HIGH, block(30))],
        history(
            "segment_alloc LOW 30; alloc LOW 30; free LOW 30; segment_free LOW 30; segment_alloc HIGH 30; alloc HIGH 30"
        ),
    )
    recording, start = recorded(tmp_path, content)
    assert compare(recording, start, DEFAULTS) == Agreement(2, 2, 2, 2, 30 * MIB, whole=True)


@pytest.mark.parametrize(("taken", "at", "kept"), [("LOW", LOW, HIGH), ("HIGH", HIGH, LOW)])
def test_among_equals_pytorch_takes_the_lowest_or_the_oldest(tmp_path: Path, taken: str, at: int, kept: int) -> None:
    """Two of 30, the older of which lies higher, are freed; 25 take either, by the version of PyTorch."""
    segments = [segment(at, block(25), block(5, "inactive")), segment(kept, block(30, "inactive"))]
    both = "segment_alloc HIGH 30; alloc HIGH 30; segment_alloc LOW 30; alloc LOW 30; free HIGH 30; free LOW 30"
    recording, start = recorded(tmp_path, snapshot(segments, history(f"{both}; alloc {taken} 25")))

    assert whole(recording, start)


def test_other_models_begin_with_what_was_in_use(tmp_path: Path) -> None:
    """0.5, 0.25, 8, 6.5 and 5 are asked for first: in segments of 2 and, as 8 and 6.5 leave 5.5 of 20, of 20.

    Under segments that grow as much is mapped; `ideal` has just the requests.
    """
    recording, start = recorded(tmp_path, MIDDLE)
    assert replay(recording, start, MemoryModel.PYTORCH).peaks == Peaks(round(20.75 * MIB), 22 * MIB)
    assert replay(recording, start, GROWING).peaks == Peaks(round(20.25 * MIB), 22 * MIB)
    assert replay(recording, start, MemoryModel.IDEAL).peaks == Peaks(round(20.25 * MIB), round(20.25 * MIB))


def test_blocks_that_wait_for_a_stream_are_not_free_until_it_is_done(tmp_path: Path) -> None:
    """30 are freed and wait; 30 more take a segment; the stream is done, and the third 30 take the first's block.

    Where only 30 fit, PyTorch waits for the stream, and frees the first segment.
    """
    before = "segment_alloc LOW 30; alloc LOW 30; free_requested LOW 30; segment_alloc HIGH 30; alloc HIGH 30"
    events = history(f"{before}; free_completed LOW 30; alloc LOW 30")
    content = snapshot([segment(LOW, block(30)), segment(HIGH, block(30))], events)
    recording, start = recorded(tmp_path, content)

    assert replay(recording, start, MemoryModel.PYTORCH).peaks == Peaks(60 * MIB, 60 * MIB)
    assert replay(recording, start, MemoryModel.PYTORCH, Memory(60 * MIB, 60 * MIB)).short_bytes == 0
    assert 0 < replay(recording, start, MemoryModel.PYTORCH, Memory(30 * MIB, 30 * MIB)).short_bytes <= 34 * MIB
    assert replay(recording, start, MemoryModel.BEST_FIT).peaks == Peaks(60 * MIB, 60 * MIB)


def test_lacking_memory_is_found_to_8_mib(tmp_path: Path) -> None:
    """50 are needed: of 38, 12 are lacking, of 20, 30; up to 8 more are reported.

    Where settings allow half of all memory, 100 are needed.
    """
    recording, start = recorded(tmp_path, WHOLE)

    def short(model: AllocatorSettings | MemoryModel, mib: int) -> float:
        return replay(recording, start, model, Memory(mib * MIB, mib * MIB)).short_bytes / MIB

    assert short(MemoryModel.PYTORCH, 50) == 0
    assert 12 <= short(MemoryModel.PYTORCH, 38) <= 20
    assert 30 <= short(MemoryModel.PYTORCH, 20) <= 38
    assert 60 <= short(AllocatorSettings(per_process_memory_fraction=0.5), 40) <= 68
    # 40 at the end, 60 in between, 20 at the beginning; addresses are not compared.
    content = snapshot(
        [segment(LOW, block(20), block(20, "inactive"), is_expandable=True)],
        history("segment_map LOW 40; segment_unmap LOW 20"),
    )
    recording, start = recorded(tmp_path, content)
    assert recording.expandable
    assert compare(recording, start, DEFAULTS) is None
    assert recorded_peaks(recording, start, DEFAULTS) == Peaks(20 * MIB, 60 * MIB)


@pytest.mark.parametrize(
    ("others", "agreed"),
    [
        ({}, 3),
        ({7: event("alloc", HIGH + 5 * MIB, 25)}, 2),
        ({0: event("segment_map", HIGH, 60), 5: event("segment_unmap", HIGH, 40)}, 0),
    ],
)
def test_segments_that_grow_are_compared_from_an_empty_memory(
    tmp_path: Path, others: dict[int, dict[str, Any]], agreed: int
) -> None:
    """30 map 40, 5 lie behind. The 30 are freed and a page unmapped; 25 take the 10 that are left and that page anew.

    In another record they lie 5 further on, and in a third a page more is mapped at first.
    """
    grown = "segment_map HIGH 40; alloc HIGH 30; alloc HIGH+30 5; free HIGH 30"
    events = history(f"{grown}; segment_unmap HIGH 20; segment_map HIGH 20; alloc HIGH 25")
    held = segment(HIGH, block(25), block(5, "inactive"), block(5), block(5, "inactive"), is_expandable=True)
    changed = [others.get(place, each) for place, each in enumerate(events)]
    (recording,) = read_recordings(written(tmp_path, snapshot([held], changed)))

    agreement = compare(recording, Start({}, {}), GROWING)

    assert agreement is not None
    assert (agreement.agreed, agreement.whole) == (agreed, agreed == 3)
