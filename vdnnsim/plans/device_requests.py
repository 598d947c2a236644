"""What a plan asks of device memory, in issue order: buffers and extents of them, taken and given back."""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from vdnnsim.errors import PolicyError
from vdnnsim.memory.choices import MemoryChoice
from vdnnsim.memory.place import MODELS_WITH_EXTENTS, extent_granule_bytes
from vdnnsim.memory.requests import Request, round_up
from vdnnsim.plans.operations import Alias, Allocate, AllocateExtent, Operation, Release, ReleaseExtent, describe
from vdnnsim.plans.pieces import Pieces
from vdnnsim.plans.training_plan import TrainingPlan


class Asked(NamedTuple):
    """A request, and the position in the plan of the operation that makes it."""

    operation: int
    request: Request


_OF_MEMORY: Final = frozenset({Allocate, Alias, Release, AllocateExtent, ReleaseExtent})
"""The operations that change memory; to ask for the type is quicker than to match each of the others."""


def device_requests(plan: TrainingPlan, model: MemoryChoice, granule_bytes: int, pieces: Pieces) -> list[Asked]:
    """Return the operations of a plan that ask for device memory or give it back, and what each of them asks.

    Raises:
        PolicyError: the plan gives back extents of buffers, which the memory model cannot.
    """
    asked: list[Asked] = []
    aliases: set[int] = set()
    # Of the buffers of which extents were given back, the pieces that are still held.
    held: dict[int, set[int]] = {}
    for position, operation in enumerate(plan.operations):
        if type(operation) not in _OF_MEMORY:
            continue
        match operation:
            case Allocate(buffer=buffer):
                asked.append(Asked(position, Request(buffer, plan.buffers[buffer].nbytes)))
            case Alias(buffer=buffer):
                aliases.add(buffer)
            case Release(buffer=buffer) if buffer in aliases:
                aliases.remove(buffer)
            case Release(buffer=buffer):
                asked.append(Asked(position, Request(buffer, None)))
                held.pop(buffer, None)
            case _:
                assert isinstance(operation, AllocateExtent | ReleaseExtent)
                buffer, extent = operation.buffer, operation.extent
                if model not in MODELS_WITH_EXTENTS:
                    raise _without_extents(plan, operation, model)
                left = held.setdefault(buffer, set(pieces.covered(buffer)))
                changed = pieces.covered(buffer, extent)
                (left.update if isinstance(operation, AllocateExtent) else left.difference_update)(changed)
                nbytes = _held_bytes(pieces.ranges(buffer), left, extent_granule_bytes(model, granule_bytes))
                asked.append(Asked(position, Request(buffer, nbytes, resizes=True)))
    return asked


def _held_bytes(ranges: Sequence[range], held: Collection[int], granule_bytes: int) -> int:
    """Return the granules in which pieces of a buffer are held, in bytes; one that several share counts once."""
    nbytes = reached = 0
    for number in sorted(held):
        first = max(reached, ranges[number].start // granule_bytes * granule_bytes)
        reached = round_up(ranges[number].stop, granule_bytes)
        nbytes += max(0, reached - first)
    return nbytes


def _without_extents(plan: TrainingPlan, operation: Operation, model: MemoryChoice) -> PolicyError:
    text = describe(operation, plan.buffer_names, plan.layers)
    able = " or ".join(repr(each.value) for each in MODELS_WITH_EXTENTS)
    return PolicyError(
        f"{plan.policy}: memory_model: found {model.value!r}, which gives buffers back as a whole and no part of one "
        f"({text}), expected {able}"
    )
