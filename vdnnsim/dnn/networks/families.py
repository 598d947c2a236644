"""Families of networks with numbers in their names, as `resnet1001` and `wrn_28_10`."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.networks.resnet import (
    CIFAR_DEPTHS,
    LARGEST_WIDTH,
    RESNET_DEPTHS,
    WRN_DEPTHS,
    resnet,
    resnet_cifar,
    wide_resnet,
)


@dataclass(frozen=True, slots=True)
class Family:
    """Networks of one builder.

    Attributes:
        name: of any member, a letter for each number: `wrn_D_W`.
        members: the numbers of each member as lists show them.
        pattern: of names, with a group for each number.
        numbers: valid values of each number.
        build: of the numbers.
    """

    name: str
    members: str
    pattern: re.Pattern[str]
    numbers: tuple[Sequence[int], ...]
    build: Callable[..., LayerGraph]

    def numbers_of(self, name: str) -> tuple[int, ...] | None:
        """Return the numbers in a name that looks like a member's; None for any other name."""
        found = self.pattern.fullmatch(name)
        return tuple(map(int, found.groups())) if found else None

    def holds(self, numbers: Sequence[int]) -> bool:
        return all(number in allowed for number, allowed in zip(numbers, self.numbers, strict=True))

    def nearest(self, numbers: Sequence[int]) -> str:
        """Return the name of the member whose numbers lie nearest, the smaller of two."""
        nearest = [
            str(min(allowed, key=lambda each: abs(each - number)))
            for number, allowed in zip(numbers, self.numbers, strict=True)
        ]
        return re.sub("[A-Z]", lambda _: nearest.pop(0), self.name)


def _any_resnet(depth: int) -> LayerGraph:
    return resnet(depth) if depth in RESNET_DEPTHS else resnet_cifar(depth)


_IMAGENET = ", ".join(map(str, RESNET_DEPTHS))

FAMILIES: Final = (
    Family(
        "resnetN",
        f"N = {_IMAGENET}; of CIFAR-10, 20 to 110 in steps of 6 but 50",
        re.compile(r"resnet([0-9]{1,4})"),
        (tuple(sorted({*RESNET_DEPTHS, *CIFAR_DEPTHS})),),
        _any_resnet,
    ),
    Family(
        "wrn_D_W",
        f"D = {', '.join(map(str, WRN_DEPTHS))}; W = 1 to {LARGEST_WIDTH}",
        re.compile(r"wrn_([0-9]{1,4})_([0-9]{1,4})"),
        (WRN_DEPTHS, range(1, LARGEST_WIDTH + 1)),
        wide_resnet,
    ),
)
