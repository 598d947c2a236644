"""The one thing that the replay of Tables II and III takes from the paper: how fast its GPUs are without swap.

The paper's TensorFlow is slower than the kernels that DeepBench measured, by two fifths on two GPUs and by three
quarters on four. What a copy costs hangs on what it can hide behind, so kernels are made to take as much longer as
brings the first row of each table, without swap, to the paper's images per second. Ratios of policies, which is what
the tables are checked for, are not in it.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FirstRow:
    """Images per second of each GPU without swap, in the first row of a table.

    Attributes:
        gpus: how many train together.
    """

    gpus: int
    batch_size: int
    images_per_s: float

    @property
    def iteration_s(self) -> float:
        """Seconds of an iteration."""
        return self.batch_size / self.images_per_s


FIRST_ROWS: Mapping[str, FirstRow] = {
    "p100_x2": FirstRow(gpus=2, batch_size=120, images_per_s=83.56),
    "p100_x4": FirstRow(gpus=4, batch_size=110, images_per_s=66.53),
}
"""By machine: those of Table II and of Table III."""
