"""How well kernels that were measured predict kernels that were not: each is left out once, and predicted.

A layer is left out in all of its phases and under all of its batch sizes, for one of them would give away the others.
Layers are left out a fifth at a time where there are many, every fifth layer together.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from vdnnsim.cost.kernel_table import KernelRow
from vdnnsim.cost.machine import peak_roofline
from vdnnsim.cost.measured import MeasuredKernelCosts
from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.server import Server

_FOLDS: Final = 5


@dataclass(frozen=True, slots=True)
class FitQuality:
    """How far predictions of one kind of kernel are off.

    Attributes:
        kind: the operator without its parameters.
        kernels: how many were left out and predicted.
        mean_absolute_percentage_error: of their seconds, in percent of the measured ones.
        mean_percentage_error: the same with its sign; below zero, predictions are too fast.
    """

    kind: str
    phase: Phase
    kernels: int
    mean_absolute_percentage_error: float
    mean_percentage_error: float


def fit_quality(rows: Sequence[KernelRow], server: Server) -> tuple[FitQuality, ...]:
    """Return the quality of predictions by kind and phase, from rows of a kernel table of any element types.

    Raises:
        ProfileError: the machine states no peak for an element type.
    """
    errors: dict[tuple[str, Phase], list[float]] = defaultdict(list)
    for element_type in sorted({row.shape.element_type for row in rows}, key=lambda each: each.value):
        peaks = peak_roofline(server, element_type)
        timed = [row for row in rows if row.seconds is not None and row.shape.element_type is element_type]
        layers = dict.fromkeys((row.shape.operator, row.shape.inputs) for row in timed)
        folds = {layer: index % _FOLDS for index, layer in enumerate(layers)}
        for fold in range(min(_FOLDS, len(layers)) if len(layers) > 1 else 0):
            left_out = [row for row in timed if folds[row.shape.operator, row.shape.inputs] == fold]
            others = [row for row in timed if folds[row.shape.operator, row.shape.inputs] != fold]
            costs = MeasuredKernelCosts(others, peaks, element_type)
            for row in left_out:
                assert row.seconds is not None
                predicted = costs.predict(row.shape, row.algorithm, row.flop, row.nbytes)
                errors[row.shape.kind, row.shape.phase].append(predicted.seconds / row.seconds - 1)
    return tuple(
        FitQuality(
            kind=kind,
            phase=phase,
            kernels=len(found),
            mean_absolute_percentage_error=100 * sum(map(abs, found)) / len(found),
            mean_percentage_error=100 * sum(found) / len(found),
        )
        for (kind, phase), found in sorted(errors.items(), key=lambda item: (item[0][0], item[0][1].value))
    )
