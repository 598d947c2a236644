"""Tables I to III of Kim et al. (2018): largest batches and images per second of a GPU.

The replay of Tables II and III has one input of the paper: the speed of its GPUs without swap. Its TensorFlow is slower
than the kernels of DeepBench, by two fifths on two GPUs and by three quarters on four, and copies overlap with all of
it. So kernels are slowed down until the first row of each table, without swap, has the paper's images per second. The
ratios of policies, which are checked, are no input.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A machine, and how many of its GPUs train."""

    hardware: str
    gpus: int


VGG = "vgg_d_13conv"
INCEPTION = "inception_v3"
NONE = "none(tensorflow)"
SWAP = "swap(tensorflow, interval=3)"
STAGGERED = "staggered_swap(tensorflow, interval=3)"

TABLE_I: Mapping[tuple[str, str], tuple[int, float]] = {
    (VGG, NONE): (80, 62.95),
    (VGG, "swap(tensorflow, interval=1)"): (128, 73.93),
    (INCEPTION, NONE): (114, 62.67),
    (INCEPTION, "swap(tensorflow, interval=2)"): (150, 63.34),
}
"""By network and policy, the largest batch on one Titan Xp and images per second there."""

TABLES_OF_SPEED: Mapping[str, tuple[Place, Mapping[int, tuple[float | None, float, float]]]] = {
    "Table II": (
        Place("p100_x2", 2),
        {120: (83.56, 56.33, 81.14), 130: (None, 56.66, 84.14), 140: (None, 58.86, 86.65), 150: (None, 60.12, 88.15)},
    ),
    "Table III": (
        Place("p100_x4", 4),
        {110: (66.53, 51.06, 68.31), 120: (None, 52.49, 70.11), 130: (None, 53.09, 70.24), 140: (None, 54.86, 70.36)},
    ),
}
"""By batch, images per second of each GPU without swap, with that of vDNN, staggered; None: out of memory."""


@dataclass(frozen=True, slots=True)
class FirstRow:
    """Images per second of each GPU without swap, in the first row of a table."""

    place: Place
    batch_size: int
    images_per_s: float

    @property
    def iteration_s(self) -> float:
        """Seconds of an iteration."""
        return self.batch_size / self.images_per_s


def first_row(hardware: str) -> FirstRow | None:
    """Return the first row of the table of a machine; None if it has none."""
    for place, rows in TABLES_OF_SPEED.values():
        if place.hardware == hardware:
            batch_size, (images_per_s, _, _) = next(iter(rows.items()))
            assert images_per_s is not None, "the first row of each table fits"
            return FirstRow(place, batch_size, images_per_s)
    return None
