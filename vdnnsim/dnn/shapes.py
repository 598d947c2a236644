"""Shapes of feature maps."""

from dataclasses import dataclass


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
