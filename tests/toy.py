"""A machine with round numbers, on which expectations can be worked out in the head.

The toy GPU has 1000 B of memory, its link moves 1 B/s in either direction without latency, the host issues in no
time. `toy_network` is a chain of CONV layers whose maps all hold 10 B; kernels take the seconds that a test gives.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from vdnnsim.cost.kernel_table import COLUMNS
from vdnnsim.cost.table import ONLY, CostModel, CostTable, KernelCost
from vdnnsim.cost.transfer import HostCopies
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.step import Access, Operand, Role
from vdnnsim.dnn.workload import Workload
from vdnnsim.engine.simulate import simulate
from vdnnsim.hardware.server import Figure, Gpu, Host, Link, MeasuredKernels, Origin, Server
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.placement import DoesNotFit, Placement, place_plan
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.interface import Policy, Setting, Trial
from vdnnsim.units import ElementType

ROOT = Path(__file__).parents[1]

TOY_SERVER = Server(
    name="toy",
    gpu=Gpu(
        name="toy GPU",
        memory_bytes=1000,
        flop_per_s={ElementType.FLOAT32: 1.0},
        dram_bytes_per_s=1.0,
        multiprocessors=1,
        granule_bytes=1,
    ),
    link=Link(name="toy link", h2d_bytes_per_s=1.0, d2h_bytes_per_s=1.0, latency_s=0.0),
    host=Host(memory_bytes=1000, issue_s=0.0, pin_latency_s=0.0, pin_bytes_per_s=1.0),
    cost_model={},
    figures=(),
)
TOY_LIMITS = MemoryLimits(MemoryModel.IDEAL, device_bytes=1000, host_bytes=1000, granule_bytes=1)


def server_with(parameters: Mapping[str, float], *figures: Figure) -> Server:
    """A roofline with these parameters, of 50 FLOP/s in float32, 100 in bfloat16, and 320 B/s."""
    peaks = {ElementType.FLOAT32: 50.0, ElementType.BFLOAT16: 100.0}
    gpu = replace(TOY_SERVER.gpu, flop_per_s=peaks, dram_bytes_per_s=320.0)
    return replace(TOY_SERVER, gpu=gpu, cost_model=parameters, cost_model_kind="roofline", figures=figures)


def kernel_table(folder: Path, lines: Iterable[str], *, tf32: bool = False) -> MeasuredKernels:
    data = "".join(f"{line}\n" for line in (",".join(COLUMNS), *lines)).encode()
    (folder / "toy.kernels.csv").write_bytes(data)
    return MeasuredKernels(folder / "toy.kernels.csv", sha256(data).hexdigest(), tf32=tf32, channels_last=False)


def toy_chain(convolutions: int) -> LayerGraph:
    """A chain of 1x1 CONV layers without activations, then an FC layer: each map of an image has 5 elements."""
    return toy_graph("; ".join(f"conv{number} conv" for number in range(1, convolutions + 1)))


def toy_graph(text: str, channels: int = 5) -> LayerGraph:
    """Read `conv1 conv; left pool; sum add conv1 left`: layers over the one before or those that are named, then FC.

    All maps have 5 elements, and the input as many as its channels; `conv 4` writes 4, has no bias in `conv unbiased`
    and a rectifier behind it in `conv relu`. Windows are of one element.
    """
    net, y = GraphBuilder("toy", MapShape(channels)), 0
    maps = {"input": y}
    for name, kind, *words in (statement.split() for statement in text.split("; ")):
        x, *others = [maps[each] for each in words if each in maps] or [y]
        relu = "relu" in words
        match kind:
            case "conv":
                width = next((int(each) for each in words if each.isdigit()), 5)
                y = net.conv(name, x, width, 1, bias="unbiased" not in words, relu=relu)
            case "bn":
                y = net.batch_norm(name, x, relu=relu)
            case "add":
                y = net.add(name, x, *others, relu=relu)
            case "concat":
                y = net.concat(name, (x, *others))
            case "dropout":
                y = net.dropout(name, x, mask_bytes=1, in_place=True)
            case _:
                y = net.pool(name, x, 1, stride=1)
        maps[name] = y
    return with_fc(net, y)


def with_fc(net: GraphBuilder, y: int, features: int = 1) -> LayerGraph:
    """Return a network of convolutions with an FC layer without activation behind map y, and a loss."""
    net.begin_classifier()
    return net.build(net.fc("fc", y, features, relu=False))


def toy_workload(graph: LayerGraph) -> Workload:
    """One image in float16, so that a map of 5 elements holds 10 B."""
    return Workload(graph, batch_size=1, element_type=ElementType.FLOAT16)


def toy_costs(
    workload: Workload,
    seconds: Mapping[tuple[str, Phase], float],
    *,
    default_s: float = 1.0,
    workspace_bytes: Mapping[tuple[str, Phase], int] | None = None,
) -> "ToyCosts":
    """One algorithm per kernel: the given seconds by layer name and phase, and the given workspaces.

    Over a part of the batch a kernel takes its part of the seconds, and the same workspace.
    """
    workspaces = workspace_bytes or {}
    kernels = {
        (layer.index, phase): (
            KernelCost(
                ONLY,
                seconds.get((layer.name, phase), default_s),
                workspaces.get((layer.name, phase), 0),
                Origin.ASSUMED,
            ),
        )
        for layer in workload.graph.layers
        for phase in workload.phases(layer)
    }
    return ToyCosts(kernels, workload.batch_size)


class ToyCosts(CostModel):
    """Given kernels of a network; for a part of the batch they take their part of the seconds. Batch size 0: any."""

    def __init__(self, kernels: Mapping[tuple[int, Phase], tuple[KernelCost, ...]], batch_size: int = 0) -> None:
        super().__init__()
        self.kernels = dict(kernels)
        self._batch_size = batch_size

    def _build(self, workload: Workload) -> CostTable:
        share = workload.part_size / self._batch_size if self._batch_size else 1
        return CostTable(
            {
                (layer, phase): options
                if share == 1 or phase is Phase.UPDATE
                else tuple(replace(each, seconds=each.seconds * share) for each in options)
                for (layer, phase), options in self.kernels.items()
            }
        )


def touching(*, reads: Iterable[int] = (), writes: Iterable[int] = ()) -> tuple[Operand, ...]:
    """Operands of a kernel that reads and writes buffers, whatever their roles."""
    read = tuple(Operand(Role.INPUT, buffer, Access.READ) for buffer in reads)
    return read + tuple(Operand(Role.OUTPUT, buffer, Access.WRITE) for buffer in writes)


class ReplayTrials:
    """Trials on the toy server."""

    def __init__(self, costs: CostModel, limits: MemoryLimits = TOY_LIMITS, server: Server = TOY_SERVER) -> None:
        self._costs = costs
        self._limits = limits
        self._server = server

    def run_trial(self, plan: TrainingPlan) -> Trial:
        """Replay a plan; one that does not fit costs nothing."""
        placement = place_plan(plan, self._limits)
        if not isinstance(placement, Placement):
            return Trial(placement, 0.0)
        trace = simulate(plan, self._costs, self._server, placement, PinnedMemory.ARENA)
        return Trial(trace, trace.iteration_s)


def toy_setting(
    workload: Workload, costs: CostModel, limits: MemoryLimits = TOY_LIMITS, server: Server = TOY_SERVER
) -> Setting:
    return Setting(workload, costs, limits, ReplayTrials(costs, limits, server), known_copies=HostCopies(server))


def placement_of(plan: TrainingPlan, limits: MemoryLimits = TOY_LIMITS) -> Placement:
    placement = place_plan(plan, limits)
    assert isinstance(placement, Placement), placement.explain()
    return placement


def overflow_of(plan: TrainingPlan, limits: MemoryLimits = TOY_LIMITS) -> DoesNotFit:
    overflow = place_plan(plan, limits)
    assert isinstance(overflow, DoesNotFit)
    return overflow


def replay(
    plan: TrainingPlan,
    costs: CostModel,
    *,
    server: Server = TOY_SERVER,
    limits: MemoryLimits = TOY_LIMITS,
    pinned: PinnedMemory = PinnedMemory.ARENA,
) -> IterationTrace:
    """Check, place and replay a plan that must fit."""
    check_plan(plan)
    return simulate(plan, costs, server, placement_of(plan, limits), pinned)


def replayed(
    policy: Policy,
    workload: Workload,
    costs: CostModel | None = None,
    *,
    server: Server = TOY_SERVER,
    limits: MemoryLimits = TOY_LIMITS,
    pinned: PinnedMemory = PinnedMemory.ARENA,
) -> IterationTrace:
    """Plan and replay a workload on the toy machine, with kernels of 1 s unless costs are given."""
    costs = costs or toy_costs(workload, {})
    return replay(policy.plan(toy_setting(workload, costs, limits)), costs, server=server, limits=limits, pinned=pinned)


def toy_trace(
    policy: Policy, convolutions: int, seconds: Mapping[tuple[str, Phase], float] | None = None
) -> IterationTrace:
    """Replay a policy on the toy chain, whose kernels take 1 s unless they are given."""
    workload = toy_workload(toy_chain(convolutions))
    return replayed(policy, workload, toy_costs(workload, seconds or {}))
