"""Peaks of histories in the form of `torch.cuda.memory._snapshot`, written by hand."""

from typing import Any

from calibration.pretend.inside.peak import RESERVATION, Place, find_peak, label, labelled_place, phase_bytes

MIB = 1 << 20


def alloc(address: int, nbytes: int, text: str, *lines: tuple[str, int]) -> dict[str, Any]:
    frames = [{"filename": file, "line": line, "name": ""} for file, line in lines]
    return {"action": "alloc", "addr": address, "size": nbytes, "frames": frames, "user_metadata": text}


def free(address: int, nbytes: int) -> dict[str, Any]:
    return {"action": "free_requested", "addr": address, "size": nbytes, "frames": []}


def test_the_peak_is_where_most_requested_memory_is_alive() -> None:
    """3 + 5 MiB, then the 5 are freed and 4 allocated: 8 MiB after the second request are the peak."""
    history = [
        alloc(1, 3 * MIB, label(1, "forward", "Net.a"), ("/projects/train.py", 7)),
        alloc(2, 5 * MIB, label(1, "forward", "Net.b"), ("/projects/train.py", 8)),
        free(2, 5 * MIB),
        alloc(3, 4 * MIB, label(1, "optimizer"), ("/projects/train.py", 9)),
    ]
    peak = find_peak(history, 7 * MIB)
    assert peak is not None
    first = Place("forward", "Net.a", "/projects/train.py:7")
    second = Place("forward", "Net.b", "/projects/train.py:8")
    assert (peak.nbytes, peak.place, peak.unplaced_bytes) == (8 * MIB, second, 0)
    assert peak.holders == ((second, 5 * MIB), (first, 3 * MIB))
    assert phase_bytes(peak.holders) == {"forward": 8 * MIB}
    # 1 B and 513 B take 512 and 1,024 B of PyTorch's allocator.
    peak = find_peak([alloc(1, 1, ""), alloc(2, 513, "")], 1536)
    assert peak is not None
    assert (peak.nbytes, peak.unplaced_bytes) == (1536, 0)
    # 2 MiB of weights, 90 MiB that are reserved and freed, then 5 MiB in their place: a peak of 7 MiB, of the step.
    place = Place("forward", "Net", "/projects/train.py:3")
    history = [
        alloc(1, 2 * MIB, ""),
        alloc(2, 90 * MIB, RESERVATION, ("/projects/train.py", 2)),
        free(2, 90 * MIB),
        alloc(2, 5 * MIB, label(1, "forward", "Net"), ("/projects/train.py", 3)),
        free(2, 5 * MIB),
    ]
    peak = find_peak(history, 2 * MIB)
    assert peak is not None
    assert (peak.nbytes, peak.place, peak.unplaced_bytes) == (7 * MIB, place, 0)
    # 9 MiB are allocated at the end, 2 of them in the history, which also frees 4 MiB of an older tensor. So 11 MiB
    # were alive before it, and the peak is 11 + 2 right after the request, 11 of them without a place.
    peak = find_peak([alloc(1, 2 * MIB, label(1)), free(9, 4 * MIB)], 9 * MIB)
    assert peak is not None
    assert (peak.nbytes, peak.unplaced_bytes) == (13 * MIB, 11 * MIB)
    # A history without requests has no peak.
    assert find_peak([], 5) is None


def test_labels_of_requests() -> None:
    """The label is of pass 1 while pass 2 runs: of the thread's last work, not of its current work."""
    history = [
        alloc(1, 512, label(2, "forward", "Net"), ("/projects/train.py", 3)),
        alloc(2, 512, label(1, "backward", "Net.first", "/projects/train.py:3")),
    ]
    peak = find_peak(history, 1024)
    assert peak is not None
    assert peak.place == Place("backward", "", "")
    # Backward label has the line of forward.
    text = label(3, "backward", "Net.blocks.0", "/projects/my net.py:12")
    assert labelled_place(text, "") == Place("backward", "Net.blocks.0", "/projects/my net.py:12")
    # Metadata of the user is no label.
    assert labelled_place("the user's word", "a.py:1") == Place("elsewhere", "", "a.py:1")
