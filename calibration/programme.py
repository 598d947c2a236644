"""A plan made ready for a device: for each of its kernels what to call and on which buffers, before any clock runs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from calibration.arena import ArenaLayout, lay_copies
from calibration.buffers import form_of
from calibration.capabilities import EXECUTOR_CAPABILITIES, refuse_more_than
from calibration.kernels.port import Kernel, KernelLibrary
from calibration.kernels.tensors import Part
from vdnnsim.dnn.convolutional import Activation
from vdnnsim.dnn.layers import Layer
from vdnnsim.dnn.saving import saving_by
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import ExecutionRefused
from vdnnsim.plan.liveness import operands
from vdnnsim.plan.operations import Alias, Compute, describe
from vdnnsim.plan.training_plan import BufferKind, TrainingPlan


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One kernel and the buffers it works on, by the names of `KernelTensors`.

    Attributes:
        workspace: the plan's buffer for it; None where the plan has none.
        workspace_bytes: what the kernel needs: what it says of itself; where it cannot tell, what the plan counts.
    """

    layer: Layer
    kernel: Kernel
    inputs: tuple[int, ...]
    output: int | None
    input_gradients: tuple[int | None, ...]
    accumulates: tuple[bool, ...]
    output_gradient: int | None
    weights: int | None
    weight_gradient: int | None
    states: tuple[int, ...]
    statistics: int | None
    workspace: int | None
    workspace_bytes: int

    @property
    def own_bytes(self) -> int:
        """Bytes that the kernel takes for itself."""
        return max(0, self.workspace_bytes - self.kernel.passed_bytes)


@dataclass(frozen=True, slots=True)
class Programme:
    """A plan that can be executed.

    Attributes:
        calls: by position of the Compute in the plan.
        forms: by buffer.
        copies: where its copies lie on the host.
        taken_bytes: by buffer, what it takes of the device: a workspace as much as the greediest of its kernels needs.
        idle_bytes: by workspace, what it takes when no kernel runs: of a single kernel's, what that is handed.
    """

    plan: TrainingPlan
    calls: Mapping[int, KernelCall]
    forms: Sequence[Part | None]
    copies: ArenaLayout
    taken_bytes: Sequence[int]
    idle_bytes: Mapping[int, int]

    @classmethod
    def of(cls, plan: TrainingPlan, workload: Workload, library: KernelLibrary) -> "Programme":
        """Find the kernels of a plan and their buffers.

        Raises:
            ExecutionRefused: the plan asks for what cannot be done; the message names it.
        """
        refuse_more_than(EXECUTOR_CAPABILITIES, plan)
        workload = saving_by(workload, plan.saving_rule)
        forms = _forms(plan, workload, channels_last=library.channels_last)
        calls = {
            position: _Binder(plan, position, operation, workload).bind(library)
            for position, operation in enumerate(plan.operations)
            if isinstance(operation, Compute)
        }
        idle_bytes: dict[int, int] = {}
        taken_bytes = [0 if buffer.kind is BufferKind.WORKSPACE else buffer.nbytes for buffer in plan.buffers]
        for call in calls.values():
            if call.workspace is not None:
                taken_bytes[call.workspace] = max(taken_bytes[call.workspace], call.workspace_bytes)
                own_bytes = 0 if call.workspace in idle_bytes else call.own_bytes
                idle_bytes[call.workspace] = taken_bytes[call.workspace] - own_bytes
        return cls(plan, calls, forms, lay_copies(plan), taken_bytes, idle_bytes)


def _forms(plan: TrainingPlan, workload: Workload, *, channels_last: bool) -> tuple[Part | None, ...]:
    if plan.layers != tuple(layer.name for layer in workload.graph.layers):
        name = workload.graph.name
        raise ExecutionRefused(f"{plan.policy}: found a plan of another network, expected one of {name}")
    touched = {buffer for each in plan.operations if isinstance(each, Compute) for buffer in each.reads + each.writes}
    storages = {operation.storage for operation in plan.operations if isinstance(operation, Alias)}
    forms = []
    for number, buffer in enumerate(plan.buffers):
        form = form_of(workload, buffer, channels_last=channels_last)
        # What a framework's own kernels keep beside maps, as Caffe's temporary maps, is moved here and not computed.
        means_nothing_here = buffer.kind in (BufferKind.WORKSPACE, BufferKind.STATISTICS)
        if form is None and not means_nothing_here and number in touched - storages:
            raise ExecutionRefused(f"{plan.policy}: {buffer.name} does not say what it belongs to")
        if form is not None and form.nbytes != buffer.nbytes:
            raise ExecutionRefused(
                f"{plan.policy}: {buffer.name} has {buffer.nbytes} bytes, expected {form.nbytes}: the plan is one of "
                "another batch size or element type"
            )
        forms.append(form)
    return tuple(forms)


class _Binder:
    """Finds the buffers of one kernel among those that its operation names."""

    def __init__(self, plan: TrainingPlan, position: int, operation: Compute, workload: Workload) -> None:
        self._plan = plan
        self._position = position
        self._operation = operation
        self._workload = workload
        self._layer = workload.graph.layers[operation.layer]
        self._touched = tuple(dict.fromkeys(operation.reads + operation.writes))
        nameless = [i for i in self._all(BufferKind.FEATURE_MAP, BufferKind.GRADIENT_MAP) if plan.buffers[i].of is None]
        if nameless:
            raise self._refusal(f"{plan.buffers[nameless[0]].name} does not say what it belongs to")

    def bind(self, library: KernelLibrary) -> KernelCall:
        """Return the kernel with its buffers."""
        kernel, layer = self._kernel(library), self._layer
        needs = operands(self._workload, layer, self._operation.phase)
        if isinstance(layer.operator, Activation) and list(self._all(BufferKind.STATISTICS)):
            # Its record takes the place of the map.
            needs = replace(needs, maps_read=(), statistics_read=True)
        maps = needs.maps_read + needs.maps_written
        gradients = needs.gradients_read + needs.gradients_written
        has_inputs = all(x in maps for x in layer.inputs)
        # In place, dY and dX are one.
        has_output_gradient = layer.output in gradients
        workspace = self._workspace(kernel)
        planned_bytes = 0 if workspace is None else self._plan.buffers[workspace].nbytes
        return KernelCall(
            layer=layer,
            kernel=kernel,
            inputs=tuple(self._map(x) for x in layer.inputs) if has_inputs else (),
            output=self._map(layer.output) if layer.output in maps else None,
            input_gradients=tuple(
                self._gradient(x) if x in needs.gradients_written else None
                for x in (layer.inputs if needs.gradients_written else ())
            ),
            accumulates=tuple(
                x in needs.gradients_written and self._workload.accumulates(layer, x)
                for x in (layer.inputs if needs.gradients_written else ())
            ),
            output_gradient=self._gradient(layer.output) if has_output_gradient else None,
            weights=self._of_layer(BufferKind.WEIGHTS, wanted=needs.weights_read),
            weight_gradient=self._of_layer(
                BufferKind.WEIGHT_GRADIENT, wanted=needs.weight_gradient_read or needs.weight_gradient_written
            ),
            states=tuple(sorted(self._all(BufferKind.OPTIMIZER_STATE))),
            statistics=self._of_layer(BufferKind.STATISTICS, wanted=needs.statistics_read or needs.statistics_written),
            workspace=workspace,
            workspace_bytes=planned_bytes if kernel.workspace_bytes is None else kernel.workspace_bytes,
        )

    def _kernel(self, library: KernelLibrary) -> Kernel:
        offered = library.kernels(self._workload, self._layer, self._operation.phase)
        for kernel in offered:
            if kernel.algorithm == self._operation.algorithm:
                return kernel
        names = " or ".join(kernel.algorithm for kernel in offered)
        raise self._refusal(f"the device has no such algorithm for this layer, expected {names}")

    def _workspace(self, kernel: Kernel) -> int | None:
        found = next(iter(self._all(BufferKind.WORKSPACE)), None)
        planned_bytes = 0 if found is None else self._plan.buffers[found].nbytes
        if planned_bytes < kernel.passed_bytes:
            raise self._refusal(f"it has {planned_bytes} bytes of workspace, expected {kernel.passed_bytes}")
        return found

    def _map(self, index: int) -> int:
        return self._one(BufferKind.FEATURE_MAP, index, self._workload.graph.maps[index].name)

    def _gradient(self, index: int) -> int:
        return self._one(BufferKind.GRADIENT_MAP, index, self._workload.graph.maps[index].name)

    def _of_layer(self, kind: BufferKind, *, wanted: bool) -> int | None:
        return self._one(kind, self._layer.index, self._layer.name) if wanted else None

    def _one(self, kind: BufferKind, of: int, owner: str) -> int:
        for buffer in self._all(kind):
            if self._plan.buffers[buffer].of == of:
                return buffer
        raise self._refusal(f"it does not name its operand among the {kind.value}: that of {owner}")

    def _all(self, *kinds: BufferKind) -> Iterable[int]:
        return (buffer for buffer in self._touched if self._plan.buffers[buffer].kind in kinds)

    def _refusal(self, message: str) -> ExecutionRefused:
        plan = self._plan
        text = describe(plan.operations[self._position], plan.buffer_names, plan.layers)
        return ExecutionRefused(f"{plan.policy}: operation {self._position} ({text}): {message}")
