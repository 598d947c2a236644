"""Rules for the workspace of an algorithm, fitted to measured workspaces.

Libraries size a workspace by tensors that they copy or by the columns of an explicit matrix product. So the workspaces
of one algorithm are compared with multiples of each such quantity, and the best fit is taken, the simplest of equals.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_low
from typing import Final

from vdnnsim.cost.kernel_table import KernelShape
from vdnnsim.cost.operator_text import read_operator
from vdnnsim.dnn.convolutional import Convolution, FullyConnected
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.operator import SavingRule
from vdnnsim.dnn.sequences import Linear


@dataclass(frozen=True, slots=True)
class Elements:
    """Numbers of elements of the tensors of a kernel.

    Attributes:
        x, y, w: of all inputs, of the output and of the weights without bias, for the whole batch.
        columns: C R S P Q for each image of a convolution, the matrix that an explicit product multiplies W with.
    """

    x: int
    y: int
    w: int
    columns: int
    batch_size: int

    @classmethod
    def of(cls, shape: KernelShape) -> "Elements":
        """Return the elements of a shape; of an update, W alone."""
        inputs, output = sum(each.elements for each in shape.inputs), shape.output
        if shape.phase is Phase.UPDATE:
            return cls(0, 0, inputs, 0, 1)
        w = columns = 0
        match read_operator(shape.operator):
            case Convolution(out_channels=channels, groups=groups) as operator:
                window, pixels = (
                    operator.work(shape.inputs[:1], SavingRule.PAPER).filter_elements,
                    output.elements // channels,
                )
                w, columns = channels * window, groups * window * pixels * shape.batch_size
            case FullyConnected(out_features=features) | Linear(out_features=features) as operator:
                w = features * operator.work(shape.inputs[:1], SavingRule.PAPER).filter_elements
            case _:
                pass
        return cls(inputs * shape.batch_size, output.elements * shape.batch_size, w, columns, shape.batch_size)


QUANTITIES: Final[Mapping[str, Callable[[Elements], int]]] = {
    "nothing": lambda _: 0,
    "one": lambda _: 1,
    "X": lambda each: each.x,
    "Y": lambda each: each.y,
    "W": lambda each: each.w,
    "columns": lambda each: each.columns,
    "X of an image": lambda each: each.x // each.batch_size,
    "Y of an image": lambda each: each.y // each.batch_size,
    "columns of an image": lambda each: each.columns // each.batch_size,
    "X and Y": lambda each: each.x + each.y,
    "X and W": lambda each: each.x + each.w,
    "Y and W": lambda each: each.y + each.w,
    "X, Y and W": lambda each: each.x + each.y + each.w,
}
"""What a workspace may be a multiple of, the simplest first."""


@dataclass(frozen=True, slots=True)
class WorkspaceRule:
    """A workspace as a multiple of a quantity of QUANTITIES."""

    quantity: str
    bytes_each: float

    def workspace_bytes(self, shape: KernelShape) -> int:
        return round(self.bytes_each * QUANTITIES[self.quantity](Elements.of(shape)))

    def scaled_bytes(self, shape: KernelShape, known: KernelShape, known_bytes: int) -> int:
        """Return the workspace of a shape, scaled by this rule from that of a known one."""
        quantity = QUANTITIES[self.quantity]
        size, known_size = quantity(Elements.of(shape)), quantity(Elements.of(known))
        return round(known_bytes * size / known_size) if known_size else known_bytes


def fit_workspace(measured: Sequence[tuple[KernelShape, int]]) -> WorkspaceRule:
    """Return the rule with the least sum of relative errors, each at most 1; `nothing` without measurements."""
    elements = [Elements.of(shape) for shape, _ in measured]
    rules: list[tuple[float, WorkspaceRule]] = []
    for name, quantity in QUANTITIES.items():
        sizes = [quantity(each) for each in elements]
        ratios = [nbytes / size for (_, nbytes), size in zip(measured, sizes, strict=True) if size and nbytes]
        # Exact for the median of the ratios.
        rule = WorkspaceRule(name, median_low(ratios) if ratios else 0.0)
        errors = (_error(rule.bytes_each * size, nbytes) for (_, nbytes), size in zip(measured, sizes, strict=True))
        rules.append((round(sum(errors), 9), rule))
    return min(rules, key=lambda each: each[0])[1]


def _error(predicted: float, found: int) -> float:
    if round(predicted) == found:
        return 0.0
    return min(1.0, abs(predicted - found) / found) if found else 1.0
