"""Settings of PyTorch's CUDA caching allocator, as in PYTORCH_ALLOC_CONF (formerly PYTORCH_CUDA_ALLOC_CONF).

They are those on which addresses and reserved memory depend; others are refused by name.
`garbage_collection_threshold` has no effect unless `per_process_memory_fraction` is below 1, as in PyTorch.

Two are not in that variable, but in scripts: `cudnn_benchmark` is `torch.backends.cudnn.benchmark`, whose search
empties the pool; `preallocated` is a script that allocates memory in one piece and frees it, as live plans do.

Source: github.com/pytorch/pytorch, versions 2.11 to 2.14, c10/core/AllocatorConfig.cpp (parseRoundUpPower2Divisions,
parseMaxSplitSize, parseGarbageCollectionThreshold) and c10/cuda/CUDACachingAllocator.cpp (round_size,
setMemoryFraction).
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from vdnnsim.errors import InputError
from vdnnsim.files.messages import not_one_of, quote
from vdnnsim.memory.requests import round_up
from vdnnsim.units import MIB

_INTERVALS: Final = 16
"""Sizes from 1 MiB to 64 GiB by powers of two, each with divisions of its own."""
_LEAST_SPLIT_MB: Final = 20
_MOST_ROUNDING_BYTES: Final = 20 * MIB
GRANULE_BYTES: Final = 512
"""To which PyTorch rounds a request (kMinBlockSize)."""
_SETTING: Final = re.compile(r"\s*([^,:\[\]]+):\s*(\[[^\[\]]*\]|[^,:\[\]]+)(?:,\s*|$)")
_ABOVE: Final = ">"


@dataclass(frozen=True)
class AllocatorSettings:
    """Settings of PyTorch's allocator.

    Attributes:
        max_split_size_mb: blocks of so many MiB or more are not cut; None to cut all.
        roundup_power2_divisions: number of parts between two powers of two to which requests are rounded up, by the
            size in MiB from which it holds, or by `>` for all above; None to round to 512 B.
        garbage_collection_threshold: fraction of the allowed memory above which the segments that were free longest are
            released; 0 for never.
        cudnn_benchmark: whether the first iteration of a captured model searches for its convolutions
            (`vdnnsim.plans.device_requests`).
        preallocated: whether the pool begins with all memory in one free piece, so that no memory is ever released.
    """

    expandable_segments: bool = False
    max_split_size_mb: int | None = None
    roundup_power2_divisions: tuple[tuple[str, int], ...] | int | None = None
    garbage_collection_threshold: float = 0.0
    per_process_memory_fraction: float = 1.0
    cudnn_benchmark: bool = False
    preallocated: bool = False

    @property
    def words(self) -> str:
        """The value of PYTORCH_ALLOC_CONF; empty for the defaults."""
        pairs = ((name, getattr(self, name)) for name in _READERS if getattr(self, name) != getattr(DEFAULTS, name))
        return ",".join(f"{name}:{_word(value)}" for name, value in pairs)

    @property
    def value(self) -> str:
        return f"pytorch({self.words})"

    def allowed_bytes(self, total_bytes: int) -> int | None:
        """Return how much of all memory of a GPU may be reserved; None for all."""
        fraction = self.per_process_memory_fraction
        return int(fraction * total_bytes) if fraction < 1 else None

    def may_serve(self, free_bytes: int, nbytes: int) -> bool:
        """Whether a free block that is large enough may serve a request."""
        if self.max_split_size_mb is None or free_bytes < self.max_split_size_mb * MIB:
            return True
        return nbytes >= self.max_split_size_mb * MIB and free_bytes < nbytes + _MOST_ROUNDING_BYTES

    def rounded(self, nbytes: int) -> int:
        """Return the size of the block for a request of so many bytes, which are whole granules."""
        divisions = self._divisions[min(max(nbytes.bit_length() - MIB.bit_length(), 0), _INTERVALS - 1)]
        if divisions <= 1 or nbytes <= GRANULE_BYTES * divisions:
            return nbytes
        return round_up(nbytes, (1 << (nbytes.bit_length() - 1)) // divisions)

    @cached_property
    def _divisions(self) -> tuple[int, ...]:
        """Number of parts by the power of two below a size."""
        stated = self.roundup_power2_divisions
        if stated is None or isinstance(stated, int):
            return (stated or 0,) * _INTERVALS
        divisions, last, first = [0] * _INTERVALS, 0, True
        for boundary, number in stated:
            if boundary == _ABOVE:
                divisions[last + 1 :] = [number] * (_INTERVALS - last - 1)
                continue
            last = min(int(boundary).bit_length() - 1, _INTERVALS - 1)
            # The first one also holds for smaller sizes.
            divisions[0 if first else last : last + 1] = [number] * (last + 1 if first else 1)
            first = False
        return tuple(divisions)


DEFAULTS: Final = AllocatorSettings()


def parse_settings(text: str) -> AllocatorSettings:
    """Return the settings of a text as `expandable_segments:True,max_split_size_mb:128`.

    Raises:
        InputError: PyTorch would refuse it, or a setting is not modelled.
    """
    stated: dict[str, object] = {}
    position = 0
    while position < len(text):
        match = _SETTING.match(text, position)
        if match is None:
            example = "expandable_segments:True,max_split_size_mb:128"
            raise InputError(f"found {quote(text)}, expected settings as {example}")
        name, value = match[1].strip(), match[2].strip()
        if name not in _READERS:
            raise InputError(not_one_of(name, _READERS, "a setting of the allocator that is modelled"))
        stated[name] = _READERS[name](name, value)
        position = match.end()
    return AllocatorSettings(**stated)  # type: ignore[arg-type]  # each reader returns the type of its setting


def _truth(name: str, text: str) -> bool:
    if text not in ("True", "False"):
        raise InputError(f"{name}: found {quote(text)}, expected True or False")
    return text == "True"


def _split_size(name: str, text: str) -> int:
    if not text.isdecimal() or int(text) < _LEAST_SPLIT_MB:
        raise InputError(f"{name}: found {quote(text)}, expected an integer from {_LEAST_SPLIT_MB} on")
    return int(text)


def _number(is_right: Callable[[float], bool], expected: str) -> Callable[[str, str], float]:
    def read(name: str, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not is_right(number):
            raise InputError(f"{name}: found {quote(text)}, expected {expected}")
        return number

    return read


def _read_divisions(name: str, text: str) -> tuple[tuple[str, int], ...] | int:
    if not text.startswith("["):
        if not _is_power(text):
            raise InputError(f"{name}: found {quote(text)}, expected a power of two, or a list as [256:1,512:2,>:4]")
        return int(text)
    pairs = []
    for part in text[1:-1].split(","):
        boundary, colon, number = (each.strip() for each in part.partition(":"))
        if not colon or not (boundary == _ABOVE or _is_power(boundary)) or not (number == "0" or _is_power(number)):
            expected = "a size in MiB, or >, and a number of divisions, both powers of two, as 256:1"
            raise InputError(f"{name}: found {quote(part.strip())}, expected {expected}")
        pairs.append((boundary, int(number)))
    return tuple(pairs)


def _is_power(text: str) -> bool:
    return text.isdecimal() and int(text).bit_count() == 1


def _word(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{','.join(f'{boundary}:{number}' for boundary, number in value)}]"
    return str(value)


_READERS: Final[Mapping[str, Callable[[str, str], object]]] = {
    "expandable_segments": _truth,
    "max_split_size_mb": _split_size,
    "roundup_power2_divisions": _read_divisions,
    "garbage_collection_threshold": _number(lambda number: 0 < number < 1, "a number between 0 and 1"),
    "per_process_memory_fraction": _number(lambda number: 0 <= number <= 1, "a number from 0 to 1"),
    "cudnn_benchmark": _truth,
    "preallocated": _truth,
}
