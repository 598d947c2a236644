"""Random traces of requests to PyTorch's caching allocator: sizes, streams, memory and settings."""

import random
from dataclasses import dataclass
from enum import Enum
from typing import Final

from vdnnsim.memory.settings import AllocatorSettings, parse_settings
from vdnnsim.units import GIB, MIB

SETTINGS: Final = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:32",
    "expandable_segments:True,max_split_size_mb:32",
    "roundup_power2_divisions:4",
    "expandable_segments:True,roundup_power2_divisions:[1:8,4:4,64:2,>:0]",
    "garbage_collection_threshold:0.6,per_process_memory_fraction:0.3",
    "expandable_segments:True,per_process_memory_fraction:0.3",
    "max_split_size_mb:24,roundup_power2_divisions:8,garbage_collection_threshold:0.5,per_process_memory_fraction:0.4",
)
"""Values of PYTORCH_ALLOC_CONF: each setting alone, and several together."""


class Sizes(Enum):
    SMALL = "small"
    LARGE = "large"
    EDGES = "edges"
    ALIKE = "alike"
    MIXED = "mixed"

    def draw(self, numbers: random.Random) -> int:
        match self:
            case Sizes.SMALL:
                return numbers.randint(1, MIB + 600)
            case Sizes.LARGE:
                return int(2 ** numbers.uniform(20, 28))
            case Sizes.EDGES:
                # Where the allocator's rules change, and a little beside.
                rule = numbers.choice((512, MIB, 2 * MIB, 9 * MIB, 10 * MIB, 12 * MIB, 19 * MIB, 20 * MIB))
                return max(1, rule + numbers.choice((-1025, -513, -512, -1, 0, 1, 511, 512, 513, 1024, MIB, -MIB)))
            case Sizes.ALIKE:
                return numbers.choice((3, 5, 5, 7, 12, 12, 24, 48)) * MIB
            case Sizes.MIXED:  # pragma: no branch
                return numbers.choice(
                    (numbers.randint(1, 4096), numbers.randint(1, 3 * MIB), int(2 ** numbers.uniform(20, 27)))
                )


@dataclass(frozen=True, slots=True)
class RandomTrace:
    """One reproducible trace, of streams that use each other's tensors."""

    sizes: Sizes
    seed: int
    events: int
    memory_bytes: int
    streams: int
    settings: AllocatorSettings


def random_traces(count: int, events: int) -> list[RandomTrace]:
    """Return traces of every kind of sizes under all of `SETTINGS`; half of them with several streams.

    Memory is plentiful in every fourth; the others have from 300 MiB to somewhat over 1 GiB.
    """
    settings = [parse_settings(each) for each in SETTINGS]
    traces = []
    for seed in range(count):
        sizes = list(Sizes)[seed % len(Sizes)]
        scarce_bytes = (300 * MIB + 14 * MIB * (seed % 7), GIB + 2 * MIB * seed)[seed % 2]
        memory_bytes = 64 * GIB if seed // 9 % 4 == 0 else scarce_bytes
        traces.append(RandomTrace(sizes, seed, events, memory_bytes, 1 + 3 * (seed // 3 % 2), settings[seed % 9]))
    return traces
