"""Kernels of which a library stated algorithms and workspaces, but nobody the time: seconds are those of a model.

Rows of such a table hold the least that peaks allow each algorithm. The fastest of a shape takes what the model says of
the shape; the others as much longer as their least times differ.
"""

from collections.abc import Mapping
from dataclasses import replace

from vdnnsim.cost.table import KernelCost, MachineCosts
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.dnn.workload import Workload
from vdnnsim.units import ElementType


class StatedWorkspaces(MachineCosts):
    """The costs of a model, with the algorithms and workspaces of another's table.

    Args:
        model: says how long a kernel takes.
        stated: says with which algorithms and workspaces.
        channels_last: how maps lie for which they were stated.
    """

    def __init__(self, model: MachineCosts, stated: MachineCosts, *, channels_last: bool) -> None:
        super().__init__()
        self._model, self._stated, self._channels_last = model, stated, channels_last

    def kernel(
        self,
        name: str,
        element_type: ElementType,
        flop: Mapping[Arithmetic, int],
        nbytes: int,
        sizes: tuple[int, ...] = (),
    ) -> KernelCost:
        """Return what the model says."""
        return self._model.kernel(name, element_type, flop, nbytes, sizes)

    def laid_out(self, *, channels_last: bool) -> MachineCosts:
        """Return the costs of maps that lie so; of another layout than the table's no workspace is known."""
        return self if channels_last is self._channels_last else self._model.laid_out(channels_last=channels_last)

    def _options(self, workload: Workload, layer: Layer, phase: Phase) -> tuple[KernelCost, ...]:
        fastest = self._model.table(workload).fastest(layer.index, phase)
        options = self._stated.table(workload).options(layer.index, phase)
        return tuple(
            replace(each, seconds=fastest.seconds * each.seconds / options[0].seconds, origin=fastest.origin)
            for each in options
        )
