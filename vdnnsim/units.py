"""Units: text with a unit parsed to SI numbers, and SI numbers written with a unit.

Elsewhere every number is SI: seconds, bytes, bytes per second, FLOP per second, watts, joules, as plain int or float.
Decimal prefixes (GB = 10^9 bytes) and binary ones (GiB = 2^30 bytes) have entries of their own.
"""

import math
import re
from collections.abc import Mapping
from enum import Enum

from vdnnsim.errors import InputError

KIB = 2**10
MIB = 2**20
GIB = 2**30

_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_BYTES = {f"{prefix}B": factor for prefix, factor in (_DECIMAL | _BINARY).items()}

_READS_WELL_BELOW = 1000

_JOULES = {"J": 1.0, "nJ": 1e-9, "pJ": 1e-12}


class Dimension(Enum):
    """The dimension of a quantity, by its name in messages."""

    BYTES = "bytes"
    SECONDS = "seconds"
    BYTES_PER_SECOND = "bytes per second"
    FLOP_PER_SECOND = "FLOP per second"
    HERTZ = "hertz"
    WATTS = "watts"
    JOULES_PER_FLOP = "joules per FLOP"
    JOULES_PER_BYTE = "joules per byte"
    COUNT = "a plain number"

    @property
    def suffix(self) -> str:
        """SI unit at the end of names, as in `latency_s`; empty for a plain number."""
        return _SUFFIXES[self]


_SUFFIXES: Mapping[Dimension, str] = {
    Dimension.BYTES: "bytes",
    Dimension.SECONDS: "s",
    Dimension.BYTES_PER_SECOND: "bytes_per_s",
    Dimension.FLOP_PER_SECOND: "flop_per_s",
    Dimension.HERTZ: "hertz",
    Dimension.WATTS: "watts",
    Dimension.JOULES_PER_FLOP: "joules_per_flop",
    Dimension.JOULES_PER_BYTE: "joules_per_byte",
    Dimension.COUNT: "",
}


def dimension_of(name: str) -> Dimension:
    """Return the dimension of a quantity, by the SI unit at the end of its name; rates of images are plain numbers."""
    found = (each for each, suffix in _SUFFIXES.items() if suffix and name.endswith(f"_{suffix}"))
    longest = max(found, key=lambda each: len(each.suffix), default=Dimension.COUNT)
    return Dimension.COUNT if longest is Dimension.SECONDS and name.endswith("_per_s") else longest


_UNITS: Mapping[Dimension, Mapping[str, float]] = {
    Dimension.BYTES: _BYTES,
    Dimension.SECONDS: {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9},
    Dimension.BYTES_PER_SECOND: {f"{unit}/s": factor for unit, factor in _BYTES.items()},
    Dimension.FLOP_PER_SECOND: {f"{prefix}FLOP/s": factor for prefix, factor in _DECIMAL.items()},
    Dimension.HERTZ: {f"{prefix}Hz": factor for prefix, factor in _DECIMAL.items()},
    Dimension.WATTS: {"W": 1.0, "mW": 1e-3, "kW": 1e3},
    Dimension.JOULES_PER_FLOP: {f"{unit}/FLOP": factor for unit, factor in _JOULES.items()},
    Dimension.JOULES_PER_BYTE: {f"{unit}/B": factor for unit, factor in _JOULES.items()},
    Dimension.COUNT: {"": 1.0},
}
_QUANTITY = re.compile(r"\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z/]*)\s*")


def parse_quantity(text: object, dimension: Dimension) -> float:
    """Return `text` ("12 GiB", "10 us", "12.8 GB/s") in SI units.

    Raises:
        InputError: `text` is no finite number of zero or more with a unit of this dimension. The message has the
            units; the caller adds file and key path.
    """
    units = _UNITS[dimension]
    if dimension is Dimension.COUNT and isinstance(text, int | float) and not isinstance(text, bool):
        text = repr(text)
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    if match is None or match[2] not in units:
        accepted = ", ".join(unit for unit in units if unit)
        hint = f"a number with one of the units {accepted}" if accepted else "a plain number"
        # Of bytes alone: mW and MW differ by more than their spelling, and a network's Gb/s are bits.
        unit = match[2].lower() if match is not None and dimension is Dimension.BYTES else ""
        meant = next((f"; did you mean {each}?" for each in units if unit and each.lower() == unit), "")
        raise InputError(f"found {text!r}, expected {hint}{meant}")
    value = float(match[1]) * units[match[2]]
    if not math.isfinite(value) or value < 0:
        raise InputError(f"found {text!r}, expected a finite number of {dimension.value}, zero or more")
    return value


def rounded_quantity(number: float, dimension: Dimension, digits: int) -> float:
    """Return the nearest number in SI units that has at most `digits` digits in its unit.

    The float 7.467e-6 is not exactly 7.467 times the float 1e-6, so it has no short text in us.
    """
    assert 0 <= number < math.inf, f"{number} cannot be stated"
    factor = next((each for each in _UNITS[dimension].values() if 1 <= number / each < _READS_WELL_BELOW), 1.0)
    return float(f"{number / factor:.{digits}g}") * factor


def quantity_text(number: float, dimension: Dimension) -> str:
    """Return a number in SI units with a readable unit; `parse_quantity` returns exactly the number."""
    assert 0 <= number < math.inf, f"{number} cannot be stated"
    candidates = []
    for unit, factor in _UNITS[dimension].items():
        value = _stated_in(number, factor)
        if value is not None:
            digits = repr(int(value)) if value.is_integer() and value < 1e6 else repr(value)
            # Up to three digits before the point are worth ten characters.
            far = 0 if 1 <= value < _READS_WELL_BELOW or number == 0 else 10
            candidates.append((len(digits) + far, f"{digits} {unit}".strip()))
    # The base unit is always among them; of equals, the first one.
    return min(candidates, key=lambda candidate: candidate[0])[1]


def _stated_in(number: float, factor: float) -> float | None:
    """Return the value with the fewest digits that is a number in a unit; None if no float is."""
    stated = number / factor
    rounded = (float(f"{stated:.{digits}g}") for digits in range(1, 18))
    values = (*rounded, math.nextafter(stated, 0), math.nextafter(stated, math.inf))
    return next((value for value in values if value * factor == number), None)


def format_bytes(nbytes: float) -> str:
    """Return a size for people, in binary units: 4.8 GiB, 512 B."""
    for unit, factor in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        # What would be 1024 of the next smaller unit, rounded, is 1.00 of this.
        if abs(nbytes) >= factor * (1 - 0.5 / 1024):
            return f"{_three_digits(nbytes / factor)} {unit}"
    return f"{nbytes:.0f} B"


def format_seconds(seconds: float) -> str:
    """Return a duration for people: 1.23 s, 45.6 ms, 7.89 us."""
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(seconds) >= factor:
            return f"{_three_digits(seconds / factor)} {unit}"
    return "0 s" if seconds == 0 else f"{_three_digits(seconds / 1e-9)} ns"


def format_rate(per_second: float) -> str:
    """Return images per second for people, with four digits or those before the point: 0.7318, 48.83, 24423."""
    return f"{per_second:.4g}" if abs(per_second) < 9999.5 else f"{per_second:.0f}"


def _three_digits(value: float) -> str:
    decimals = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:.{decimals}f}"


class ElementType(Enum):
    """Type of an element; `tf32` is stored as float32 and multiplied in fewer bits."""

    FLOAT32 = "float32"
    TF32 = "tf32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"

    @classmethod
    def _missing_(cls, value: object) -> "ElementType | None":
        """Return the type of a common short name."""
        return next((each for each in cls if each.value == _SHORT_NAMES.get(str(value))), None)

    @property
    def nbytes(self) -> int:
        """Bytes of one element."""
        return 4 if self in (ElementType.FLOAT32, ElementType.TF32) else 2


class Precision(Enum):
    """Precision of a workload: one element type throughout, or PyTorch's mixed precision with a narrow one.

    In mixed precision (torch.autocast) weights, their gradients and optimizer states are float32; products are computed
    in the narrow type, with copies of weights in forward and backward; losses and layer normalizations are float32.
    """

    FLOAT32 = "float32"
    TF32 = "tf32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    AMP_BFLOAT16 = "amp_bfloat16"
    AMP_FLOAT16 = "amp_float16"

    @classmethod
    def _missing_(cls, value: object) -> "Precision | None":
        """Return the precision of a common short name; `amp` is what torch.autocast takes on a GPU by default."""
        return next((each for each in cls if each.value == _SHORT_NAMES.get(str(value))), None)

    @classmethod
    def short_names(cls) -> list[str]:
        """Return the common short names."""
        return list(_SHORT_NAMES)

    @property
    def element_type(self) -> ElementType:
        """Of weights, and of maps where precision is not mixed."""
        return ElementType.FLOAT32 if self.autocast else ElementType(self.value)

    @property
    def autocast(self) -> ElementType | None:
        """The narrow type of mixed precision; None without it."""
        return ElementType(self.value.removeprefix("amp_")) if self.value.startswith("amp_") else None


_SHORT_NAMES: Mapping[str, str] = {
    "fp32": "float32",
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "amp": "amp_float16",
    "amp_fp16": "amp_float16",
    "amp_bf16": "amp_bfloat16",
}
"""Of element types and precisions."""
