"""What operations demand of a GPU, reckoned once for all that are alike, as those of equal blocks."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch._ops import OpOverload

from calibration.capture.known_results import key_of
from calibration.capture.operand_copies import copied_operands, temporary_bytes
from calibration.capture.operator_work import Effort, arithmetic_type, effort_of, traffic_of
from calibration.capture.sectors import sectors_of
from vdnnsim.dnn.kernel_work import NO_SECTORS, Sectors


@dataclass(frozen=True, slots=True)
class Demand:
    """What an operation demands.

    Attributes:
        copied_bytes: of operands that its kernels copy into another order.
        sectors: that its kernel touches, or these copies.
        temporary_bytes: these, and what else they allocate and free.
    """

    element_type: str
    effort: Effort = field(default_factory=Effort)
    bytes_moved: int = 0
    copied_bytes: int = 0
    sectors: Sectors = NO_SECTORS
    temporary_bytes: int = 0


class Demands:
    """Demands by what decides the shapes of results, which is known of fake tensors alone."""

    def __init__(self) -> None:
        self._known: dict[object, Demand] = {}

    def of(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> Demand:
        key = key_of(func, args, kwargs)
        found = None if key is None else self._known.get(key)
        if found is None:
            copied = copied_operands(func, args, kwargs)
            copied_bytes = sum(each.nbytes for each, _ in copied)
            found = Demand(
                arithmetic_type(func, args, kwargs, result),
                effort_of(func, args, kwargs, result),
                traffic_of(func, args, kwargs, result),
                copied_bytes,
                sectors_of(func, args, kwargs, result, copied),
                temporary_bytes(func, args, copied_bytes),
            )
            if key is not None:
                self._known[key] = found
        return found
