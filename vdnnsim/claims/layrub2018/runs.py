"""The replays behind the claims: a network under a policy on one of the paper's two machines, each run once.

All are trained with momentum, as the solvers of the authors say (github.com/CGCL-codes/Layrub, models). Memory needs a
plan alone; only times are replayed, on a GPU without a capacity, for a row that does not fit has a time as well.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from vdnnsim.dnn.layers import LayerKind
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.engine.simulate import simulate
from vdnnsim.experiment import UNLIMITED_BYTES, Bench
from vdnnsim.hardware.server import Server
from vdnnsim.largest_batch import LargestBatch, largest_batches
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plan.operations import Allocate, Release
from vdnnsim.plan.placement import Placement, place_plan
from vdnnsim.plan.training_plan import BufferKind, TrainingPlan
from vdnnsim.policies.port import Policy
from vdnnsim.policies.registry import PolicyTypes, known_policies, resolve_policy
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.trace import IterationTrace

_MAPS = (BufferKind.FEATURE_MAP, BufferKind.GRADIENT_MAP)


@dataclass(frozen=True, slots=True)
class Case:
    """A network with its batch size on a machine."""

    hardware: str
    network: str
    batch_size: int


@dataclass(frozen=True, slots=True)
class Memory:
    """What a plan takes on the GPU, in bytes.

    Attributes:
        maps: the most at once of what is activations and their gradients, the regions that they share included.
        runtime: all, with the context and the handles of the framework, as nvidia-smi shows it.
        fits: whether that is no more than the GPU has, and the host has room for what leaves it.
    """

    maps: int
    runtime: int
    fits: bool


@dataclass
class LayrubRuns:
    """Replays, remembered.

    Attributes:
        machines: by the names of their profiles.
    """

    machines: Mapping[str, Server] = field(repr=False)
    _types: PolicyTypes = field(default_factory=known_policies, repr=False)
    _benches: dict[Case, Bench] = field(default_factory=dict, repr=False)
    _memories: dict[tuple[Case, str], Memory] = field(default_factory=dict, repr=False)
    _seconds: dict[tuple[Case, str], float] = field(default_factory=dict, repr=False)
    _largest: dict[tuple[Case, str], LargestBatch] = field(default_factory=dict, repr=False)

    def bench(self, case: Case) -> Bench:
        """The workload of a case with its costs."""
        if case not in self._benches:
            graph = build_network(case.network)
            workload = Workload(graph, case.batch_size, optimizer=Optimizer.MOMENTUM)
            self._benches[case] = Bench.of(
                workload, self.machines[case.hardware], MemoryModel.IDEAL, PinnedMemory.ARENA
            )
        return self._benches[case]

    def plan(self, case: Case, policy: str) -> TrainingPlan:
        """The plan of a policy, by its label."""
        return self._policy(policy).plan(self.bench(case).setting())

    def memory(self, case: Case, policy: str) -> Memory:
        """What a policy takes."""
        key = case, policy
        if key not in self._memories:
            bench, plan = self.bench(case), self.plan(case, policy)
            unlimited, limits = _place_without_limits(bench, plan), bench.limits
            self._memories[key] = Memory(
                maps=_most_at_once(plan, _MAPS),
                runtime=unlimited.pool_bytes + bench.server.gpu.framework_bytes(plan.handles),
                # Bytes are added up, so what is needed in all decides.
                fits=unlimited.pool_bytes <= limits.pool_bytes(plan) and unlimited.host_bytes <= limits.host_bytes,
            )
        return self._memories[key]

    def blob_bytes(self, case: Case) -> int:
        """Bytes of what Caffe calls blobs: data and diffs of all maps.

        What a batch normalization reads here is the normalized map that Caffe's keeps inside; the layer before it and
        it share one blob (`vdnnsim.policies.caffe_layers`).
        """
        workload = self.bench(case).workload
        inside = {layer.inputs[0] for layer in workload.graph.layers if layer.kind is LayerKind.BN}
        return self.memory(case, "caffe").maps - 2 * sum(workload.map_bytes(index) for index in inside)

    def inside_bytes(self, case: Case) -> int:
        """Bytes of the normalized maps, once each."""
        workload = self.bench(case).workload
        inside = {layer.inputs[0] for layer in workload.graph.layers if layer.kind is LayerKind.BN}
        return sum(workload.map_bytes(index) for index in inside)

    def iteration_s(self, case: Case, policy: str) -> float:
        """Seconds of an iteration."""
        key = case, policy
        if key not in self._seconds:
            self._seconds[key] = self.trace(case, policy).iteration_s
        return self._seconds[key]

    def trace(self, case: Case, policy: str) -> IterationTrace:
        """An iteration on a GPU without a capacity."""
        bench, plan = self.bench(case), self.plan(case, policy)
        return simulate(plan, bench.costs, bench.server, _place_without_limits(bench, plan), bench.pinned)

    def largest(self, case: Case, policy: str) -> LargestBatch:
        """The largest batch that fits; that of the case is the first guess."""
        key = case, policy
        if key not in self._largest:
            bench = self.bench(case)
            scenario = Scenario(
                name=case.network,
                workload=bench.workload,
                server=bench.server,
                policies=(self._policy(policy),),
                memory_model=MemoryModel.IDEAL,
                pinned_memory=PinnedMemory.ARENA,
                sources=(),
            )
            (self._largest[key],) = largest_batches(scenario)
        return self._largest[key]

    def _policy(self, label: str) -> Policy:
        return resolve_policy(label, self._types)


def _place_without_limits(bench: Bench, plan: TrainingPlan) -> Placement:
    unlimited = replace(bench.limits, device_bytes=UNLIMITED_BYTES, host_bytes=UNLIMITED_BYTES)
    placement = place_plan(plan, unlimited)
    assert isinstance(placement, Placement)
    return placement


def _most_at_once(plan: TrainingPlan, kinds: tuple[BufferKind, ...]) -> int:
    in_use = most = 0
    allocated = set()
    for operation in plan.operations:
        if isinstance(operation, Allocate) and plan.buffers[operation.buffer].kind in kinds:
            allocated.add(operation.buffer)
            in_use += plan.buffers[operation.buffer].nbytes
            most = max(most, in_use)
        elif isinstance(operation, Release) and operation.buffer in allocated:
            allocated.remove(operation.buffer)
            in_use -= plan.buffers[operation.buffer].nbytes
    return most
