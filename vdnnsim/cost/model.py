"""The cost model of a server: its measured kernels, and for what was not measured the kind that its profile names.

    cost_model: {kind: maxwell, ...}     parameters of `vdnnsim.cost.maxwell`; the kind where none is named
    cost_model: {kind: efficiency, ...}  `vdnnsim.cost.efficiency`: modern GPUs, by kinds of kernels
    cost_model: {kind: roofline, ...}    `vdnnsim.cost.roofline`: a datasheet and a launch overhead
    cost_model: {kind: table}            the table of kernels alone (`vdnnsim.cost.measured`)

Where kernels of the element type were measured, they and what is predicted from them make up the table.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from vdnnsim.cost.captured import captured_table
from vdnnsim.cost.efficiency import EfficiencyCosts, efficient_gpu
from vdnnsim.cost.kernel_table import KernelRow, read_measured_kernels
from vdnnsim.cost.machine import peak_roofline
from vdnnsim.cost.maxwell import MaxwellCosts
from vdnnsim.cost.measured import MeasuredCosts
from vdnnsim.cost.parameters import CostParameters
from vdnnsim.cost.roofline import RooflineCosts, roofline_parameters
from vdnnsim.cost.table import CostModel, CostTable, KernelCost, MachineCosts
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import ProfileError
from vdnnsim.files.messages import file_name, not_one_of
from vdnnsim.hardware.server import Server
from vdnnsim.units import ElementType

EFFICIENCY: Final = "efficiency"
KINDS: Final[Mapping[str, Callable[[Server], MachineCosts]]] = {
    "maxwell": MaxwellCosts,
    EFFICIENCY: EfficiencyCosts,
    "roofline": RooflineCosts,
}
TABLE: Final = "table"
NO_LIFETIMES: Final = "the trace that was recorded does not tell what lives when, so memory says nothing"


def check_cost_model(name: str, server: Server) -> None:
    """Refuse what the profile called `name` states in `cost_model`, where it states anything and that is wrong.

    Raises:
        ProfileError: the kind is none, or it lacks a parameter, has one that it does not know, or one out of range.
    """
    kind, parameters = server.cost_model_kind, server.cost_model
    if kind not in (*KINDS, TABLE):
        raise ProfileError(f"{name}: cost_model.kind: {not_one_of(kind, (*KINDS, TABLE), 'a kind of cost model')}")
    if kind == "roofline":
        roofline_parameters(name, parameters)
    elif kind == EFFICIENCY:
        efficient_gpu(server)
    elif kind == TABLE and parameters:
        raise ProfileError(f"{name}: cost_model: found {', '.join(sorted(parameters))}, but a table has no parameters")
    elif parameters:
        CostParameters.from_mapping(name, parameters)


class ServerCosts(CostModel):
    """The costs of kernels on a server; each of its models is made when a workload first wants it."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        self._models: dict[ElementType, tuple[MachineCosts, str]] = {}
        self._stand_ins: dict[ElementType, ServerCosts] = {}
        self._narrow_models: dict[ElementType, tuple[MachineCosts, str]] = {}

    def _build(self, workload: Workload) -> CostTable:
        half, rates = workload.graph.autocast, self._server.gpu.flop_per_s
        if half and half not in rates:
            if half not in self._stand_ins:
                gpu = replace(self._server.gpu, flop_per_s={**rates, half: rates[ElementType.FLOAT32]})
                self._stand_ins[half] = ServerCosts(replace(self._server, gpu=gpu))
            gap = f"{self._server.name} states no gpu.peak for {half.value}; the rate of float32 stands in"
            table = self._stand_ins[half].table(workload)
            return replace(table, gap=_joined(gap, table.gap))
        if isinstance(workload, CapturedWorkload):
            return self._captured(workload)
        model, gap = self._model(workload.element_type)
        table = model.table(workload)
        gap = _joined(gap, table.gap)
        if half is None:
            return replace(table, gap=gap)
        narrow, narrow_gap = self._narrow(half)
        layers, narrow_table = workload.graph.layers, narrow.table(workload)
        kernels = {
            (layer, phase): (narrow_table if workload.arithmetic_type(layers[layer], phase) is half else table).options(
                layer, phase
            )
            for layer, phase in table.kernels
        }
        return CostTable(kernels, _joined(narrow_gap, narrow_table.gap) or gap)

    def _captured(self, workload: CapturedWorkload) -> CostTable:
        """Return the costs of what was captured; what computes in a type of which nothing is known as the workload."""
        gaps: dict[str, None] = {} if workload.captured.lifetimes else {NO_LIFETIMES: None}

        def machine(element_type: ElementType) -> tuple[MachineCosts, ElementType]:
            asked = element_type if self._server.computes_in(element_type) else workload.element_type
            model, gap = self._narrow(asked) if asked is workload.graph.autocast else self._model(asked)
            gaps.update(dict.fromkeys(filter(None, (gap,))))
            return model, asked

        table = captured_table(workload, machine, self._server.gpu.multiprocessors)
        return replace(table, gap=_joined(*gaps))

    def _narrow(self, half: ElementType) -> tuple[MachineCosts, str]:
        """Return what times kernels in the narrow type of mixed precision, those of float32 where nothing else does."""
        if half not in self._narrow_models:
            try:
                self._narrow_models[half] = self._model(half)
            except ProfileError:
                kernels = self._server.kernels
                assert kernels is not None, "without a table the cost model has served float32"
                gap = f"{kernels.table.name} times no kernel in {half.value}; those of float32 stand in"
                peaks = peak_roofline(self._server, half)
                model = MeasuredCosts(read_measured_kernels(kernels), peaks, ElementType.FLOAT32)
                self._narrow_models[half] = model, gap
        return self._narrow_models[half]

    def of_type(self, element_type: ElementType) -> MachineCosts:
        """Return what times kernels of an element type.

        Raises:
            ProfileError: the profile has no kernel of the type and no model for it, or one of them is wrong.
        """
        return self._model(element_type)[0]

    def _model(self, element_type: ElementType) -> tuple[MachineCosts, str]:
        if element_type not in self._models:
            self._models[element_type] = self._find(element_type)
        return self._models[element_type]

    def _find(self, element_type: ElementType) -> tuple[MachineCosts, str]:
        server, gap = self._server, ""
        models = bool(server.cost_model) and server.cost_model_kind != TABLE
        if server.kernels is not None:
            rows = read_measured_kernels(server.kernels)
            in_tf32 = element_type is ElementType.TF32 and server.kernels.tf32
            stored = ElementType.FLOAT32 if in_tf32 else element_type
            if stored.value in _timed(rows):
                table = MeasuredCosts(rows, peak_roofline(server, stored), stored)
                if server.cost_model_kind != EFFICIENCY or any(row.count for row in rows):
                    if other := server.kernels.timed_on:
                        why = f"were timed on {other}, which has another GPU or other peaks"
                        raise ProfileError(f"{server.name}: kernels: {why}; expected `kernels: null` and a cost_model")
                    return table, ""
                layout = server.kernels.channels_last
                return StatedWorkspaces(EfficiencyCosts(server), table, channels_last=layout), ""
            untimed = f"times no kernel in {element_type.value}, only in {', '.join(sorted(_timed(rows))) or 'none'}"
            if not models:
                raise ProfileError(f"{file_name(server.kernels.table)}: {untimed}")
            gap = f"{server.kernels.table.name} {untimed}; its cost model stands in"
        elif not models:
            raise ProfileError(f"{server.name}: has neither kernels nor a cost_model, so nothing can be timed on it")
        check_cost_model(server.name, server)
        model = KINDS[server.cost_model_kind](server)
        peak_roofline(server, element_type)
        return model, gap


class StatedWorkspaces(MachineCosts):
    """The costs of a model, with the algorithms and workspaces of a table whose kernels nobody timed.

    Rows of such a table hold the least time that peaks allow each algorithm. The fastest of a shape takes what the
    model says of the shape; the others as much longer as their least times differ.

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


def _joined(*gaps: str) -> str:
    return "; ".join(gap for gap in gaps if gap)


def _timed(rows: Iterable[KernelRow]) -> set[str]:
    return {row.shape.element_type.value for row in rows if row.seconds is not None}
