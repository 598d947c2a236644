"""Shapes of feature maps."""

from dataclasses import dataclass

Size2 = tuple[int, int]
"""Height and width."""


@dataclass(frozen=True, slots=True)
class MapShape:
    """Shape (C, H, W) of the feature maps of one image; a vector of n features is (n, 1, 1).

    Attributes:
        steps: length of a series of such maps: frames of a video, tokens of a sequence; 1 for an image.
    """

    channels: int
    height: int = 1
    width: int = 1
    steps: int = 1

    @property
    def elements(self) -> int:
        """Elements of one image, or of all steps."""
        return self.channels * self.height * self.width * self.steps

    def __str__(self) -> str:
        """CxHxW, or TxCxHxW for T steps."""
        sizes = f"{self.channels}x{self.height}x{self.width}"
        return sizes if self.steps == 1 else f"{self.steps}x{sizes}"


Shapes = tuple[MapShape, ...]
"""Of all inputs or outputs of an operator, in order."""


def slide(size: Size2, kernel: Size2, stride: Size2, padding: Size2) -> Size2:
    """Return the number of windows, down and across; the last incomplete one is left out."""
    height = (size[0] + 2 * padding[0] - kernel[0]) // stride[0] + 1
    width = (size[1] + 2 * padding[1] - kernel[1]) // stride[1] + 1
    return height, width
