"""The peak of allocated memory and what held it, by a replay of PyTorch's memory history."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .user_lines import user_line_of

RESERVATION = "vdnnsim: reservation"
"""Label of memory that is allocated only to have PyTorch reserve it, and freed at once."""
_GRANULE_BYTES = 512  # kMinBlockSize of c10/cuda/CUDACachingAllocator: to which PyTorch rounds a request
_LABEL = re.compile(r"pass (\d+)(?:, (forward|backward|recomputation|optimizer|tuning)(?: of (.*?))?(?: from (.*))?)?")


@dataclass(frozen=True, slots=True)
class Place:
    """Where memory was requested.

    Attributes:
        phase: `forward`, `backward`, `recomputation`, `optimizer`, `tuning` of a kernel by time, or `elsewhere`.
        module: path of the innermost running module, beginning with the class of the outermost; empty outside of all.
            In backward the module reached last. Of what is compiled the graph, or the kernel that is tuned.
        line: `file:line` of the user's own code; in backward that which called the module forward. Empty if unknown.
    """

    phase: str
    module: str
    line: str


@dataclass(frozen=True, slots=True)
class Peak:
    """The peak of allocated memory.

    Attributes:
        nbytes: allocated, in requests rounded to PyTorch's 512 bytes.
        place: of the request that reached it.
        holders: live bytes by the place of their request; the largest first.
        unplaced_bytes: live since before the history begins, or in blocks larger than requested.
    """

    nbytes: int
    place: Place
    holders: tuple[tuple[Place, int], ...]
    unplaced_bytes: int


def label(number: int, phase: str = "", module: str = "", line: str = "") -> str:
    """Return the label of current work in the history, with the number of the forward pass."""
    text = f"pass {number}"
    if phase:
        text += f", {phase}"
    if module:
        text += f" of {module}"
    return f"{text} from {line}" if line else text


def find_peak(history: Sequence[Mapping[str, Any]], allocated_bytes: int) -> Peak | None:
    """Replay the history of one GPU, `device_traces` of PyTorch's snapshot; None if it has no request.

    At its end so many bytes are allocated. Reservations are left out: later requests of the program lie within them.
    """
    history = list(_without_reservations(history))
    held, levels = 0, []
    for event in history:
        held += _change(event)
        levels.append(held)
    before = allocated_bytes - held
    first = max(range(len(levels)), key=levels.__getitem__, default=None)
    if first is None or history[first]["action"] != "alloc":
        return None
    by_place: dict[Place, int] = {}
    alive_at: dict[int, tuple[Place, int]] = {}
    place, number = Place("elsewhere", "", ""), 0
    for event in history[: first + 1]:
        if event["action"] == "alloc":
            place, number = _place(event, number)
            alive_at[event["addr"]] = (place, _change(event))
        elif event["action"] == "free_requested":
            alive_at.pop(event["addr"], None)
    for where, nbytes in alive_at.values():
        by_place[where] = by_place.get(where, 0) + nbytes
    holders = sorted(by_place.items(), key=lambda each: -each[1])
    nbytes = before + levels[first]
    return Peak(nbytes, place, tuple(holders), nbytes - sum(by_place.values()))


def phase_bytes(holders: Iterable[tuple[Place, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for place, nbytes in holders:
        total[place.phase] = total.get(place.phase, 0) + nbytes
    return total


def _without_reservations(history: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    reserved: set[int] = set()
    for event in history:
        if event["action"] == "alloc" and event.get("user_metadata", "") == RESERVATION:
            reserved.add(event["addr"])
        elif event["action"] == "free_requested" and event["addr"] in reserved:
            reserved.remove(event["addr"])
        else:
            yield event


def _change(event: Mapping[str, Any]) -> int:
    """Return the change of allocated bytes by an event; memory that another stream still uses counts as freed."""
    nbytes: int = -(-event["size"] // _GRANULE_BYTES) * _GRANULE_BYTES
    return {"alloc": nbytes, "free_requested": -nbytes}.get(event["action"], 0)


def _place(event: Mapping[str, Any], number: int) -> tuple[Place, int]:
    """Return the place of a request, and the number of the latest forward pass up to it."""
    line = user_line_of(event["frames"])
    found = _LABEL.fullmatch(event.get("user_metadata", ""))
    if found is None:
        return Place("elsewhere" if event["frames"] else "backward", "", line), number
    if int(found[1]) < number:
        # A thread of autograd still has the label of an earlier pass.
        return Place("backward", "", line), number
    return labelled_place(found[0], line), int(found[1])


def labelled_place(text: str, line: str) -> Place:
    """Return the place of a label, with the line of its request if there is one."""
    found = _LABEL.fullmatch(text)
    if found is None:
        return Place("elsewhere", "", line)
    return Place(found[2] or "elsewhere", found[3] or "", line or found[4] or "")
