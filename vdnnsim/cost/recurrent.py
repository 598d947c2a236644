"""Costs of recurrent layers, whose steps wait for each other, from those of their products.

As of cuDNN's standard algorithm (Appleyard, Kocisky and Blunsom, Optimizing Performance of Recurrent Neural Networks on
GPUs, arXiv:1604.01946, 2016; I features of the input of a layer, H cells, G gates):

    input    of each layer one product of all steps with its G H x I weights, ahead of them
    step     a product of batch x H by H x G H, and a kernel for all that cells compute element by element; of a
             projected layer another product, of batch x H by H x P
    chain    step t of a layer runs beside step t + 1 of the layer below, so T + layers - 1 steps follow each other; a
             layer above one of two directions needs all of its steps, so T x layers do, of two directions each

Backward goes through the chain in reverse, with weights transposed, and has then a product of all steps for dX of each
layer, and one for each dW. Steps that run beside each other are one kernel. Each reads the weights of those before it
again, from the L2 if all of them fit there. Sums for the gradients of biases are left out. Not known is how fast the
kernels are that keep weights in registers over all steps, nor what the host takes to launch those of a chain.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from vdnnsim.cost.table import ONLY, RECURRENT, KernelCost, KernelWork, MachineCosts
from vdnnsim.dnn.kernel_work import RecurrentWork
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.units import ElementType

_CELLS: Final = f"{RECURRENT} cells"


def recurrent_cost(machine: MachineCosts, element_type: ElementType, work: RecurrentWork) -> KernelCost:
    """Return what recurrent layers cost, forward or backward."""
    kernels = _Kernels(machine, element_type, work)
    parts = [*kernels.chain(), *(kernels.gradients() if work.is_backward else kernels.inputs())]
    return replace(KernelCost.joined(parts), algorithm=ONLY, parts=())


def steps_abreast(work: RecurrentWork) -> dict[int, int]:
    """Return how many steps of the chain have so many cells abreast: {abreast: how many}."""
    if work.directions > 1:
        return {work.directions: work.steps * work.layers}
    most = min(work.steps, work.layers)
    return {**dict.fromkeys(range(1, most), 2), most: abs(work.steps - work.layers) + 1}


@dataclass(frozen=True)
class _Kernels:
    machine: MachineCosts
    element_type: ElementType
    work: RecurrentWork

    def chain(self) -> Iterator[KernelCost]:
        work, batch = self.work, -(-self.work.rows // self.work.steps)
        cells, state, columns = work.hidden_size, work.state_size, work.gates * work.hidden_size
        products = [(state, columns) if work.is_backward else (columns, state)]
        if work.projected:
            products.append((cells, state) if work.is_backward else (state, cells))
        for abreast, count in steps_abreast(work).items():
            for outputs, depth in products:
                yield _times(count, self._product(abreast, batch, outputs, depth, is_repeated=True))
            yield _times(count, self._cells(abreast * batch * cells))

    def inputs(self) -> Iterator[KernelCost]:
        """Yield the products of each layer with its input, of both directions at once."""
        columns = self.work.directions * self.work.gates * self.work.hidden_size
        for times, features in self._layers():
            yield _times(times, self._product(1, self.work.rows, columns, features))

    def gradients(self) -> Iterator[KernelCost]:
        """Yield the products for dX of each layer, and for dW of the input, of the state and of the projection."""
        work, directions, columns = self.work, self.work.directions, self.work.gates * self.work.hidden_size
        for times, features in self._layers():
            yield _times(times, self._product(1, work.rows, features, directions * columns))
            if work.of_weights:
                yield _times(times, self._product(1, directions * columns, features, work.rows))
        if work.of_weights:
            yield _times(work.layers, self._product(directions, columns, work.state_size, work.rows))
            if work.projected:
                yield _times(work.layers, self._product(directions, work.projected, work.hidden_size, work.rows))

    def _layers(self) -> Iterator[tuple[int, int]]:
        """Yield how many layers have so many features of input."""
        yield 1, self.work.input_size
        if self.work.layers > 1:
            yield self.work.layers - 1, self.work.directions * self.work.state_size

    def _product(self, count: int, rows: int, columns: int, depth: int, *, is_repeated: bool = False) -> KernelCost:
        width = self.element_type.nbytes
        weights_bytes = count * columns * depth * width
        nbytes = weights_bytes + count * rows * (columns + depth) * width
        flop = {Arithmetic.PRODUCT: 2 * count * rows * columns * depth}
        repeated = weights_bytes if is_repeated else 0
        sizes = count, rows, columns, depth
        return self.machine.kernel(
            KernelWork(RECURRENT, self.element_type, flop, nbytes, sizes, repeated_bytes=repeated)
        )

    def _cells(self, cells: int) -> KernelCost:
        """Return what a kernel costs that reads and writes the gates and the state of cells."""
        values = cells * (self.work.gates + 1)
        flop = {Arithmetic.ELEMENTWISE: values}
        return self.machine.kernel(KernelWork(_CELLS, self.element_type, flop, 2 * values * self.element_type.nbytes))


def _times(count: int, cost: KernelCost) -> KernelCost:
    return replace(cost, seconds=count * cost.seconds, dram_bytes=count * cost.dram_bytes)
