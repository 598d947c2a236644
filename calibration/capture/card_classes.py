"""Cards for which the same operations are captured, by compute capability.

Of the rules in `calibration.capture.cuda`, attention alone asks for the generation, and cuDNN's random states between
recurrent layers for the multiprocessors.
"""

from typing import Final, TypeAlias

from vdnnsim.dnn.captured_step import CapturedStep

Capability: TypeAlias = tuple[int, int]
ANY: Final = (0, 0)
_AMPERE, _SMALL = (8, 0), (8, 6)
_MOST_OF_SMALL: Final = 192
"""Largest size of a head up to which flash attention is the same on chips with less shared memory."""
_ATTENDING: Final[tuple[tuple[Capability, Capability, Capability], ...]] = (
    ((5, 0), (6, 9), (5, 0)),
    ((7, 0), (7, 9), (7, 0)),
    (_SMALL, (8, 9), _SMALL),
    ((9, 0), (9, 0), (9, 0)),
    ((10, 0), (10, 9), (9, 0)),
    ((12, 0), (12, 1), _SMALL),
)
"""First and last capability of equal choices in `calibration.capture.cuda.attention`, and their common name."""


def class_of_card(step: CapturedStep, capability: Capability) -> Capability:
    """Return a capability that stands for all cards for which the same is captured; `ANY` if that is every card."""
    if step.compiled or step.parallel or any("_cudnn_rnn" in each.name for each in step.operations):
        return capability
    if not step.largest_head:
        return ANY
    alike = _attending_alike(capability)
    return _AMPERE if alike == _SMALL and step.largest_head <= _MOST_OF_SMALL else alike


def captured_alike(step: CapturedStep, one: Capability, other: Capability) -> bool:
    """Return whether what was captured for one card is the same for another."""
    return class_of_card(step, one) == class_of_card(step, other)


def classes_of(capability: Capability) -> tuple[Capability, ...]:
    """Return all that may stand for a card."""
    alike = _attending_alike(capability)
    return tuple(dict.fromkeys((capability, alike, *((_AMPERE,) if alike == _SMALL else ()), ANY)))


def _attending_alike(capability: Capability) -> Capability:
    return next((like for first, last, like in _ATTENDING if first <= capability <= last), capability)
