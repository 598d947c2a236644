"""Snapshots as PyTorch pickles them, written by hand; sizes in MiB."""

import pickle
from pathlib import Path
from typing import Any

from vdnnsim.units import MIB

LOW, HIGH = 64 * MIB, 7000 * MIB
"""Where a driver puts segments."""

Entry = dict[str, Any]


def event(action: str, address: int, mib: float, stream: int = 0, **more: object) -> Entry:
    return {"action": action, "addr": address, "size": round(mib * MIB), "stream": stream, "frames": [], **more}


def freed(address: int, mib: float, stream: int = 0) -> list[Entry]:
    return [event("free_requested", address, mib, stream), event("free_completed", address, mib, stream)]


def history(text: str) -> list[Entry]:
    """Read `alloc LOW 30; free HIGH+8 9` as events: 30 MiB at LOW, and both events that free 9 behind 8 of HIGH."""
    events: list[Entry] = []
    for action, place, mib in (statement.split() for statement in text.split("; ")):
        base, _, offset = place.partition("+")
        address = {"LOW": LOW, "HIGH": HIGH}[base] + round(float(offset or 0) * MIB)
        events += freed(address, float(mib)) if action == "free" else [event(action, address, float(mib))]
    return events


def block(mib: float, state: str = "active_allocated", **more: object) -> Entry:
    size = round(mib * MIB)
    return {"size": size, "requested_size": size, "state": state, "frames": [], **more}


def segment(address: int, *blocks: Entry, stream: int = 0, kind: str = "large", gpu: int = 0, **more: object) -> Entry:
    total = sum(each["size"] for each in blocks)
    about = {"device": gpu, "address": address, "total_size": total, "stream": stream, "segment_type": kind}
    return {**about, "blocks": list(blocks), **more}


def snapshot(segments: list[Entry], *traces: list[Entry], **more: object) -> Entry:
    return {"segments": segments, "device_traces": list(traces), **more}


def written(folder: Path, content: object, protocol: int = 4) -> Path:
    path = folder / "s.pickle"
    path.write_bytes(pickle.dumps(content, protocol))
    return path


# 8 get a segment of 20, 9 lie behind them; the 8 go; 30 get a segment of their own, which lies lower.
WHOLE = snapshot(
    [segment(LOW, block(30)), segment(HIGH, block(8, "inactive"), block(9), block(3, "inactive"))],
    history("segment_alloc HIGH 20; alloc HIGH 8; alloc HIGH+8 9; free HIGH 8; segment_alloc LOW 30; alloc LOW 30"),
)
