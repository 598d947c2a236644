"""Replays of Jin et al. (2018): a network under a policy on one of the two machines, each computed once.

All train with momentum, as the authors' solvers (github.com/CGCL-codes/Layrub, models). Memory needs a plan alone;
times are replayed in unlimited memory, for rows that do not fit have times as well.

Each system has its own allocator: Caffe and Layrub a cudaMalloc for each buffer, MXNet storages, TensorFlow regions
that double. GeePS, vDNN and all others use one pool.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from vdnnsim.claims.replays import cached_method, labelled_policy, slower_machine
from vdnnsim.cost.model import ServerCosts
from vdnnsim.cost.table import AdjustedCosts, CostModel, KernelCost
from vdnnsim.dnn.layers import Layer, LayerKind, Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.operations import Aggregation, Compute
from vdnnsim.plans.placement import Placement, needed_bytes, place_plan, place_unlimited
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan
from vdnnsim.policies.caffe import BATCH_AHEAD_NAMES
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.scenario.simulator import Simulator
from vdnnsim.study.largest_batch import LargestBatch, largest_batches
from vdnnsim.units import MIB

_PLANS: Final = 32
_MAPS = (BufferKind.FEATURE_MAP, BufferKind.GRADIENT_MAP)
_POOLS: Final[Mapping[str, MemoryModel]] = {
    "caffe": MemoryModel.CUDA_MALLOC,
    "layrub_intra": MemoryModel.CUDA_MALLOC,
    "layrub_inter": MemoryModel.CUDA_MALLOC,
    "layrub_hybrid": MemoryModel.CUDA_MALLOC,
    "memonger": MemoryModel.MXNET,
    "tensorflow": MemoryModel.TENSORFLOW,
}
MXNET_CONTEXT_BYTES: Final = 251 * MIB
"""In nvidia-smi of MXNet with 25 numbers, in June 2017 on an unnamed card (https://github.com/apache/mxnet/issues/6575);
replaces the context of the profile, that of a small program. With it ResNet-34 without memonger takes what others
measured on a K40m (`mxnet_without_memonger`)."""


@dataclass(frozen=True, slots=True)
class LayrubCase:
    """A network with its batch size on a machine.

    Attributes:
        gpus: how many train together, a batch each, with gradients reduced in a ring.
    """

    hardware: str
    network: str
    batch_size: int
    slowdown: float = 1.0
    gpus: int = 1


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a plan on the GPU, in bytes; `runtime` is process memory, with context and handles."""

    runtime: int
    fits: bool


@dataclass
class LayrubRuns:
    """Cached replays, on machines by the names of their profiles."""

    machines: Mapping[str, Server] = field(repr=False)
    _plans: dict[tuple[LayrubCase, str], TrainingPlan] = field(default_factory=dict, repr=False)

    @cached_method
    def simulator(self, case: LayrubCase) -> Simulator:
        server = self.machines[case.hardware]
        costs: CostModel = self._costs(case.hardware)
        if case.slowdown != 1:
            server, costs = slower_machine(server, case.slowdown), AdjustedCosts(costs, partial(_slower, case.slowdown))
        return Simulator.of(
            self._workload(case.network, case.batch_size),
            server,
            MemoryModel.IDEAL,
            PinnedMemory.ARENA,
            gpus=case.gpus,
            gradients=Aggregation.RING if case.gpus > 1 else None,
            cost_model=costs,
        )

    @cached_method
    def _costs(self, hardware: str) -> ServerCosts:
        return ServerCosts(self.machines[hardware])

    @cached_method
    def _workload(self, network: str, batch_size: int) -> Workload:
        return Workload(build_network(network), batch_size, optimizer=Optimizer.MOMENTUM)

    def plan(self, case: LayrubCase, policy: str) -> TrainingPlan:
        """The plan of a policy, by its label; TensorFlow chooses workspaces by its allocator. The last are cached."""
        alone = replace(case, slowdown=1.0, gpus=1)
        if (alone, policy) not in self._plans:
            setting = self.simulator(alone).setting()
            setting = replace(setting, known_limits=replace(setting.limits, model=pool_of(policy)))
            if len(self._plans) >= _PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[alone, policy] = labelled_policy(policy).plan(setting)
        plan = self._plans[alone, policy]
        # Barriers take a share of the time of a kernel.
        return _at_pace(plan, case.slowdown) if policy.startswith("layrub") else plan

    @cached_method
    def memory(self, case: LayrubCase, policy: str) -> Memory:
        simulator, plan = self.simulator(case), self.plan(case, policy)
        placement, gpu = place_in(simulator, plan, pool_of(policy)), simulator.server.gpu
        if policy == "memonger":
            gpu = replace(gpu, context_bytes=MXNET_CONTEXT_BYTES)
        runtime = placement.pool_bytes + gpu.framework_bytes(plan.handles)
        # The system takes its memory before or in its first iteration, so the sum decides.
        fits = runtime <= gpu.memory_bytes and placement.host_bytes <= simulator.limits.host_bytes
        return Memory(runtime, fits=fits)

    @cached_method
    def maps_bytes(self, case: LayrubCase, policy: str) -> int:
        """Peak of activations and their gradients with shared regions, without batches that Caffe reads ahead."""
        plan = self.plan(case, policy)
        buffers = (
            each if each.kind in _MAPS and each.name not in BATCH_AHEAD_NAMES else replace(each, nbytes=0)
            for each in plan.buffers
        )
        return needed_bytes(replace(plan, buffers=tuple(buffers)))

    def blob_bytes(self, case: LayrubCase) -> int:
        """Bytes of Caffe's blobs: data and diffs of all maps.

        The input of a batch normalization here is the map that Caffe's keeps inside; the layer before it and it share
        one blob (`vdnnsim.policies.caffe`).
        """
        return self.maps_bytes(case, "caffe") - 2 * self.inside_bytes(case)

    def inside_bytes(self, case: LayrubCase) -> int:
        """Bytes of the normalized maps, once each."""
        workload = self.simulator(case).workload
        inside = {layer.inputs[0] for layer in workload.graph.layers if layer.kind is LayerKind.BN}
        return sum(workload.map_bytes(index) for index in inside)

    @cached_method
    def iteration_s(self, case: LayrubCase, policy: str) -> float:
        return self.replay(case, self.plan(case, policy)).iteration_s

    def replay(self, case: LayrubCase, plan: TrainingPlan) -> IterationTrace:
        """An iteration of any plan for a case in unlimited memory, of several GPUs the slowest."""
        simulator = self.simulator(case)
        plans = simulator.completed((plan,) * case.gpus)
        server_trace = simulator.replay(plans, [place_in(simulator, each, MemoryModel.IDEAL) for each in plans])
        return max(server_trace.gpus, key=lambda trace: trace.iteration_s)

    @cached_method
    def largest(self, case: LayrubCase, policy: str) -> LargestBatch:
        """The largest batch that fits; that of the case is the first guess."""
        simulator = self.simulator(case)
        scenario = Scenario(
            name=case.network,
            workload=simulator.workload,
            server=simulator.server,
            policies=(labelled_policy(policy),),
            memory_model=pool_of(policy),
            pinned_memory=PinnedMemory.ARENA,
        )
        (found,) = largest_batches(scenario)
        return found


def pool_of(policy: str) -> MemoryModel:
    return _POOLS.get(policy, MemoryModel.IDEAL)


def place_in(simulator: Simulator, plan: TrainingPlan, model: MemoryModel) -> Placement:
    """Place a plan in unlimited memory, but TensorFlow's, whose last region depends on the capacity, within it."""
    limits = replace(simulator.limits, model=model)
    placement = place_plan(plan, limits) if model is MemoryModel.TENSORFLOW else None
    return placement if isinstance(placement, Placement) else place_unlimited(plan, limits)


def _at_pace(plan: TrainingPlan, slowdown: float) -> TrainingPlan:
    """Return a plan whose barriers are slowed down as kernels are."""
    if slowdown == 1:
        return plan
    operations = (
        replace(each, barrier_s=each.barrier_s * slowdown) if isinstance(each, Compute) and each.barrier_s else each
        for each in plan.operations
    )
    return replace(plan, operations=tuple(operations))


def _slower(
    slowdown: float, _workload: Workload, _layer: Layer, _phase: Phase, options: tuple[KernelCost, ...]
) -> tuple[KernelCost, ...]:
    return tuple(each.retimed(lambda seconds: slowdown * seconds) for each in options)
