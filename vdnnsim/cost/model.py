"""The cost model of a server: its measured kernels, and for others the kind that its profile names.

    cost_model: {kind: maxwell, ...}     parameters of `vdnnsim.cost.maxwell`; the kind where none is named
    cost_model: {kind: efficiency, ...}  `vdnnsim.cost.efficiency`: modern GPUs, by kinds of kernels
    cost_model: {kind: roofline, ...}    `vdnnsim.cost.roofline`: a datasheet and a launch overhead
    cost_model: {kind: table}            the table of kernels alone (`vdnnsim.cost.measured`)

If kernels of the element type were measured, all times are those, or predicted from them.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final

from vdnnsim.cost.captured import captured_table
from vdnnsim.cost.efficiency import EfficiencyCosts, efficient_gpu
from vdnnsim.cost.kernel_table import KernelRow, read_measured_kernels
from vdnnsim.cost.machine import peak_roofline
from vdnnsim.cost.maxwell import MaxwellCosts
from vdnnsim.cost.measured import MeasuredCosts
from vdnnsim.cost.parameters import CostParameters
from vdnnsim.cost.recurrent import recurrent_cost
from vdnnsim.cost.roofline import RooflineCosts, roofline_parameters
from vdnnsim.cost.roofline_fit import Roofline
from vdnnsim.cost.table import CostModel, CostTable, KernelCost, KernelWork, MachineCosts
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.kernel_work import RecurrentWork
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.sequences import Lstm
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import ProfileError
from vdnnsim.files.messages import file_name, not_one_of
from vdnnsim.hardware.profile import Profile, load_profile
from vdnnsim.hardware.server import MeasuredKernels, Origin, Server
from vdnnsim.units import ElementType

_PARAMETER: Final = re.compile(r"cost_model(?:\.|: ')?(?P<key>\w*)")
EFFICIENCY: Final = "efficiency"
KINDS: Final[Mapping[str, Callable[[Server], MachineCosts]]] = {
    "maxwell": MaxwellCosts,
    EFFICIENCY: EfficiencyCosts,
    "roofline": RooflineCosts,
}
TABLE: Final = "table"
NO_LIFETIMES: Final = "the recorded trace has no lifetimes, so memory is not known"


def check_cost_model(name: str, server: Server) -> None:
    """Check the section `cost_model` of the profile called `name`.

    Raises:
        ProfileError: the kind is unknown, or a parameter is missing, unknown or out of range.
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


def checked_profile(path: Path) -> Profile:
    """Read a profile and check its cost model.

    Raises:
        ProfileError: the file cannot be read, or something in it is wrong.
    """
    profile = load_profile(path)
    try:
        check_cost_model(profile.file, profile.server)
    except ProfileError as failure:
        message = str(failure)
        found = _PARAMETER.search(message)
        places = (f"cost_model.{found['key']}", "cost_model") if found else ()
        line = next((profile.lines[each] for each in places if each in profile.lines), None)
        if line is None:
            raise
        raise ProfileError(message.replace("cost_model", f"line {line}: cost_model", 1)) from None
    return profile


class ServerCosts(CostModel):
    """The costs of kernels on a server; its models are made when first needed."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._server = server
        self._models: dict[ElementType, tuple[MachineCosts, str]] = {}
        self._stand_ins: dict[ElementType, ServerCosts] = {}
        self._narrow_models: dict[ElementType, tuple[MachineCosts, str]] = {}
        self._on_fewer: dict[int, ServerCosts] = {}

    def on_multiprocessors(self, count: int) -> CostModel:
        """Return the costs on so many multiprocessors, which share the DRAM; times of a table are of all."""
        if self._server.kernels is not None and not self._times_by_model:
            return self
        if count not in self._on_fewer:
            gpu = self._server.gpu
            rates = {each: rate * count / gpu.multiprocessors for each, rate in gpu.flop_per_s.items()}
            fewer = replace(gpu, flop_per_s=rates, multiprocessors=count)
            self._on_fewer[count] = ServerCosts(replace(self._server, gpu=fewer))
        return self._on_fewer[count]

    def _build(self, workload: Workload) -> CostTable:
        half, rates = workload.graph.autocast, self._server.gpu.flop_per_s
        if half and half not in rates:
            if half not in self._stand_ins:
                gpu = replace(self._server.gpu, flop_per_s={**rates, half: rates[ElementType.FLOAT32]})
                self._stand_ins[half] = ServerCosts(replace(self._server, gpu=gpu))
            gap = f"{self._server.name} states no gpu.peak for {half.value}; the rate of float32 stands in"
            if half is ElementType.BFLOAT16 and ElementType.FLOAT16 in rates:
                gap += ", and `--precision amp_fp16` has its own"
            table = self._stand_ins[half].table(workload)
            return replace(table, gap=_joined(gap, table.gap))
        if isinstance(workload, CapturedWorkload):
            return self._captured(workload)
        model, gap = self._model(workload.element_type)
        table = _built_table(model, workload)
        gap = _joined(gap, table.gap)
        if half is None:
            return replace(table, gap=gap)
        narrow, narrow_gap = self._narrow(half)
        layers, narrow_table = workload.graph.layers, _built_table(narrow, workload)
        kernels = {
            (layer, phase): (narrow_table if workload.arithmetic_type(layers[layer], phase) is half else table).options(
                layer, phase
            )
            for layer, phase in table.kernels
        }
        return CostTable(kernels, _joined(narrow_gap, narrow_table.gap) or gap)

    def _captured(self, workload: CapturedWorkload) -> CostTable:
        """Return the costs of a captured workload; operations in unknown types are costed in that of the workload."""
        gaps: dict[str, None] = {} if workload.captured.lifetimes else {NO_LIFETIMES: None}

        def machine(element_type: ElementType) -> tuple[MachineCosts, ElementType]:
            asked = element_type if self._server.computes_in(element_type) else workload.element_type
            model, gap = self._narrow(asked) if asked is workload.graph.autocast else self._model(asked)
            if workload.has_convolutions or not self._times_by_model:
                gaps.update(dict.fromkeys(filter(None, (gap,))))
            return model, asked

        table = captured_table(workload, machine, self._server.gpu.multiprocessors)
        return replace(table, gap=_joined(*gaps))

    @cached_property
    def _times_by_model(self) -> bool:
        """Whether times are those of the model in every type, and a table has workspaces of convolutions alone."""
        kernels = self._server.kernels
        is_timed = kernels is not None and any(row.count for row in read_measured_kernels(kernels))
        return self._server.cost_model_kind == EFFICIENCY and not is_timed

    def _narrow(self, half: ElementType) -> tuple[MachineCosts, str]:
        """Return the model for the narrow type of mixed precision, else that of float32, and the gap."""
        if half not in self._narrow_models:
            try:
                self._narrow_models[half] = self._model(half)
            except ProfileError:
                kernels = self._server.kernels
                assert kernels is not None, "without a table the cost model has served float32"
                gap = f"{kernels.table.name} times no kernel in {half.value}; those of float32 stand in"
                model = _measured(kernels, peak_roofline(self._server, half), ElementType.FLOAT32)
                self._narrow_models[half] = model.anew(), gap
        return self._narrow_models[half]

    def of_type(self, element_type: ElementType) -> MachineCosts:
        """Return the model for kernels of an element type.

        Raises:
            ProfileError: the profile has neither kernels nor a model for the type, or one of them is wrong.
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
                table = _measured(server.kernels, peak_roofline(server, stored), stored).anew()
                if not self._times_by_model:
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


def _built_table(machine: MachineCosts, workload: Workload) -> CostTable:
    """Return the costs of a built network, whose recurrent layers run step by step where they were not measured."""
    table = machine.table(workload)
    chains = {
        (layer.index, phase): (recurrent_cost(machine, workload.arithmetic_type(layer, phase), work),)
        for layer in workload.graph.layers
        for phase in workload.phases(layer)
        if (work := _recurrent_work(workload, layer, phase)) is not None
        and table.fastest(layer.index, phase).origin is not Origin.MEASURED
    }
    return replace(table, kernels={**table.kernels, **chains}) if chains else table


def _recurrent_work(workload: Workload, layer: Layer, phase: Phase) -> RecurrentWork | None:
    if not isinstance(layer.operator, Lstm) or phase is Phase.UPDATE:
        return None
    return layer.operator.recurrent_work(layer.in_shapes[0], workload.part_size, is_backward=phase.is_backward)


@lru_cache(maxsize=16)
def _measured(kernels: MeasuredKernels, peaks: Roofline, element_type: ElementType) -> MeasuredCosts:
    """Return the costs of a table, whose fits serve all machines with this GPU, as the points of a study."""
    return MeasuredCosts(read_measured_kernels(kernels), peaks, element_type)


class StatedWorkspaces(MachineCosts):
    """The times of a model with the algorithms and workspaces of a table whose kernels were not timed.

    Rows of such a table hold the least time that the peaks allow. The fastest algorithm of a shape takes the time of
    the model, the others are longer in proportion to their least times.
    """

    def __init__(self, model: MachineCosts, stated: MachineCosts, *, channels_last: bool) -> None:
        super().__init__()
        self._model, self._stated, self._channels_last = model, stated, channels_last

    def kernel(self, work: KernelWork) -> KernelCost:
        return self._model.kernel(work)

    def laid_out(self, *, channels_last: bool) -> MachineCosts:
        """Return the costs of maps in a layout; in another than the table's, those of the model."""
        return self if channels_last is self._channels_last else self._model.laid_out(channels_last=channels_last)

    def _options(self, workload: Workload, layer: Layer, phase: Phase) -> tuple[KernelCost, ...]:
        fastest = self._model.table(workload).fastest(layer.index, phase)
        options = self._stated.table(workload).options(layer.index, phase)
        least_s = options[0].seconds
        return tuple(
            replace(
                each, seconds=fastest.seconds * each.seconds / least_s, origin=fastest.origin, shares=fastest.shares
            )
            for each in options
        )


def _joined(*gaps: str) -> str:
    return "; ".join(gap for gap in gaps if gap)


def _timed(rows: Iterable[KernelRow]) -> set[str]:
    return {row.shape.element_type.value for row in rows if row.seconds is not None}
