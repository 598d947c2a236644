"""Shapes of feature maps and the types of their elements."""

from dataclasses import dataclass
from enum import Enum


class ElementType(Enum):
    """How one element of a map or weight is stored."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"

    @property
    def nbytes(self) -> int:
        """Bytes of one element."""
        return 4 if self is ElementType.FLOAT32 else 2


@dataclass(frozen=True, slots=True)
class MapShape:
    """Shape (C, H, W) of the feature maps of one image; a vector of n features is (n, 1, 1)."""

    channels: int
    height: int = 1
    width: int = 1

    @property
    def elements(self) -> int:
        """Elements of one image."""
        return self.channels * self.height * self.width

    def __str__(self) -> str:
        """C x H x W as people write it."""
        return f"{self.channels}x{self.height}x{self.width}"
