"""A device with its kernels and small networks, and checks of what an executor did on it."""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace

import msgspec
import torch

from calibration.devices.interface import Device
from calibration.executor.dry_run import DryRunLibrary
from calibration.executor.executor import Execution, Executor
from calibration.kernels.interface import KernelLibrary
from tests.calibration.kernels.plain_network import run_plainly
from tests.calibration.kernels.reference import run_reference
from tests.toy import TOY_LIMITS, TOY_SERVER, toy_setting
from vdnnsim.cost.table import CostModel, CostTable, KernelCost
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.networks.tiny import tiny_forked, tiny_linear, tiny_residual
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Link, Origin
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.operations import Compute, HostSynchronize, Offload, Prefetch, RecordEvent, Stream, WaitEvent
from vdnnsim.plans.placement import DoesNotFit, needed_bytes
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.algorithms import Algorithms
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.registry import known_policies
from vdnnsim.policies.vdnn import VdnnAll

NETWORKS: tuple[Callable[[], LayerGraph], ...] = (tiny_linear, tiny_forked, tiny_residual)

UNLIMITED = replace(TOY_LIMITS, device_bytes=2**60, host_bytes=2**60)

SERVER = replace(
    TOY_SERVER,
    gpu=replace(TOY_SERVER.gpu, memory_bytes=2**60),
    link=Link(name="paced", h2d_bytes_per_s=8e6, d2h_bytes_per_s=6e6, latency_s=100e-6),
    host=replace(TOY_SERVER.host, memory_bytes=2**60, issue_s=20e-6),
)
"""Copies of maps of a tiny network take about as long as its kernels in `every_second_explicit`."""

REFUSED = ("page_migration",)
"""Of the policies for one GPU, those whose plans this executor cannot carry out."""

Seconds = Callable[[Layer, Phase, int], float]
"""The time of a kernel, from its place among those on offer."""


def framework_first(_layer: Layer, _phase: Phase, place: int) -> float:
    return 0.010 + 0.004 * place


def every_second_explicit(layer: Layer, _phase: Phase, place: int) -> float:
    """Every second layer is faster by its last algorithm, the others by the framework's own."""
    return 0.010 + 0.004 * (place if layer.index % 2 else 1 / (1 + place))


class LibraryCosts(CostModel):
    """The kernels of a library, for whatever workload, with made-up times and their own workspaces."""

    def __init__(self, library: KernelLibrary, seconds: Seconds) -> None:
        super().__init__()
        self._library = library
        self._seconds = seconds

    def _build(self, workload: Workload) -> CostTable:
        table = {}
        for layer in workload.graph.layers:
            for phase in workload.phases(layer):
                costs = [
                    KernelCost(
                        each.algorithm, self._seconds(layer, phase, at), each.workspace_bytes or 0, Origin.ASSUMED
                    )
                    for at, each in enumerate(self._library.kernels(workload, layer, phase))
                ]
                table[layer.index, phase] = tuple(sorted(costs, key=lambda cost: cost.seconds))
        return CostTable(table)


@dataclass(frozen=True)
class Bench:
    device: Device
    library: DryRunLibrary

    @classmethod
    def of(cls, device: Device, library: KernelLibrary) -> "Bench":
        return cls(device, DryRunLibrary.of(device, library))

    def workload(self, network: Callable[[], LayerGraph]) -> Workload:
        return Workload(network(), batch_size=2)

    def plan(
        self, workload: Workload, policy: Policy, seconds: Seconds = framework_first, limits: MemoryLimits = UNLIMITED
    ) -> TrainingPlan:
        return policy.plan(toy_setting(workload, LibraryCosts(self.library, seconds), limits, SERVER))

    def tight_limits(self, workload: Workload, seconds: Seconds) -> MemoryLimits:
        """Return as much memory as vdnn_all(m) needs and a tenth more, so that a dynamic policy must offload."""
        least = self.plan(workload, VdnnAll(algorithms=Algorithms.MEMORY_OPTIMAL), seconds)
        return replace(UNLIMITED, device_bytes=needed_bytes(least) * 11 // 10)

    def attempt(
        self, workload: Workload, plan: TrainingPlan, limits: MemoryLimits = UNLIMITED
    ) -> Execution | DoesNotFit:
        with closing(Executor(self.device, workload, self.library)) as executor:
            return executor.execute(plan, limits)

    def execute(self, workload: Workload, plan: TrainingPlan, limits: MemoryLimits = UNLIMITED) -> Execution:
        execution = self.attempt(workload, plan, limits)
        assert isinstance(execution, Execution), execution.explain()
        return execution


def every_policy() -> list[Policy]:
    """Return every policy for one GPU that can be carried out, under both rules for algorithms where it has them."""
    policies: list[Policy] = []
    for name, policy in known_policies().items():
        if name in REFUSED:
            continue
        if "algorithms" in {field.name for field in msgspec.structs.fields(policy)}:
            policies += [msgspec.convert({"algorithms": rule.value}, policy) for rule in Algorithms]
        else:
            policies.append(policy())
    return policies


def assert_results_are_the_references(bench: Bench, workload: Workload, plan: TrainingPlan, run: Execution) -> None:
    """Loss, gradients and updated weights are, bit for bit, those without any memory management."""
    chosen = {
        (operation.layer, operation.phase): operation.algorithm
        for operation in plan.operations
        if isinstance(operation, Compute)
    }
    reference = run_reference(
        workload,
        bench.library,
        lambda layer, phase: chosen[layer.index, phase],
        device_type=bench.device.torch_device.type,
    )
    assert run.loss == reference.loss
    assert_equal_tensors(run.gradients, reference.gradients, workload)
    updated = {layer.index for layer in workload.updated_layers}
    assert_equal_tensors(
        run.weights, {index: each for index, each in reference.weights.items() if index in updated}, workload
    )


def assert_results_are_those_of_autograd(bench: Bench, workload: Workload, run: Execution) -> None:
    """Loss and gradients are, bit for bit, those of the same network in plain PyTorch."""
    device_type = bench.device.torch_device.type
    plain = run_plainly(workload, device_type=device_type, channels_last=bench.library.channels_last)
    assert run.loss == plain.loss
    assert_equal_tensors(run.gradients, plain.gradients, workload)


def assert_equal_tensors(
    found: Mapping[int, torch.Tensor], expected: Mapping[int, torch.Tensor], workload: Workload
) -> None:
    assert found.keys() == expected.keys()
    for index, tensor in expected.items():
        assert torch.equal(found[index], tensor), workload.graph.layers[index].name


def assert_order_is_the_plans(plan: TrainingPlan, trace: IterationTrace) -> None:
    """Each stream runs its operations in the plan's order, and nothing starts before what it has to wait for."""
    spans = {span.operation: span for span in trace.spans}
    assert len(spans) == len(trace.spans)
    on_streams = {
        Stream.COMPUTE: [i for i, each in enumerate(plan.operations) if isinstance(each, Compute)],
        Stream.MEMORY: [i for i, each in enumerate(plan.operations) if isinstance(each, Offload | Prefetch)],
    }
    for stream, positions in on_streams.items():
        assert [span.operation for span in trace.spans_on(stream)] == positions
    done_s = dict.fromkeys(Stream, 0.0)
    events_s: dict[int, float] = {}
    for position, operation in enumerate(plan.operations):
        match operation:
            case Compute() | Offload() | Prefetch():
                stream = Stream.COMPUTE if isinstance(operation, Compute) else Stream.MEMORY
                assert spans[position].stream is stream
                assert done_s[stream] <= spans[position].start_s <= spans[position].end_s <= trace.iteration_s
                assert spans[position].issue_s <= spans[position].start_s
                done_s[stream] = spans[position].end_s
            case RecordEvent(event=event, stream=stream):
                events_s[event] = done_s[stream]
            case WaitEvent(event=event, stream=stream):
                done_s[stream] = max(done_s[stream], events_s[event])
            case HostSynchronize(streams=streams):
                now_s = max(done_s[stream] for stream in streams)
                done_s = {stream: max(now_s, each) for stream, each in done_s.items()}
            case _:
                pass
