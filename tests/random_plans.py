"""Random networks, kernels, links and policies on a machine with round numbers, for properties of all of them."""

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from tests.toy import TOY_LIMITS, TOY_SERVER, ToyCosts, placement_of, toy_setting, toy_workload
from vdnnsim.cost.table import CostModel, KernelCost
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Mode, Optimizer, Workload
from vdnnsim.engine.simulate import simulate
from vdnnsim.hardware.server import Host, Link, Origin, Server
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.memory_limits import MemoryLimits
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.algorithms import Algorithms
from vdnnsim.policies.base import Base
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.iterations.layerwise import PrefetchSearch
from vdnnsim.policies.page_migration import PageMigration
from vdnnsim.policies.swap import StaggeredSwap, Swap, SwapIn, Synchronization
from vdnnsim.policies.vdnn import VdnnAll, VdnnConv, VdnnDyn

ROOMY = replace(TOY_LIMITS, device_bytes=10**9, host_bytes=10**9)
# Eighths are exact in binary, so that sums of durations are, too.
_SECONDS = st.integers(0, 80).map(lambda eighths: eighths / 8)
_RATES = st.sampled_from((0.5, 1.0, 4.0, 64.0))


@st.composite
def graphs(draw: st.DrawFn) -> LayerGraph:
    """CONV, POOL and BN layers in a row, now and then two branches that are joined or added, one or two FC layers."""
    width = draw(st.integers(1, 4))
    net = GraphBuilder("random", MapShape(width, 2, 2))
    y = 0
    for number in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(("conv", "pool", "norm", "fork", "residual")))
        channels, relu = draw(st.integers(1, 6)), draw(st.booleans())
        if kind == "conv":
            y, width = net.conv(f"conv{number}", y, channels, 1, bias=draw(st.booleans()), relu=relu), channels
        elif kind == "pool":
            y = net.pool(f"pool{number}", y, 1, stride=1)
        elif kind == "norm":
            y = net.batch_norm(f"norm{number}", y, relu=relu)
        elif kind == "residual":
            branch = net.conv(f"branch{number}", y, width, 1, bias=False, relu=False)
            branch = net.batch_norm(f"branch{number}/norm", branch, relu=draw(st.booleans()))
            a, b = draw(st.permutations((branch, y)))
            y = net.add(f"sum{number}", a, b, relu=relu)
        else:
            a = net.conv(f"left{number}", y, channels, 1, relu=relu)
            b = net.pool(f"right{number}", y, 1, stride=1)
            y, width = net.concat(f"join{number}", (a, b)), channels + width
    net.begin_classifier()
    if draw(st.booleans()):
        y = net.fc("fc1", y, 3, relu=draw(st.booleans()))
    return net.build(net.fc("fc2", y, 2, relu=False))


@st.composite
def workloads(draw: st.DrawFn, networks: st.SearchStrategy[LayerGraph] | None = None) -> Workload:
    """A random network, of convolutions unless others are given, in one of the two modes, with or without an update."""
    mode = draw(st.sampled_from(Mode))
    optimizer = draw(st.sampled_from(Optimizer)) if mode is Mode.TRAINING else Optimizer.NONE
    graph = draw(graphs() if networks is None else networks)
    return replace(toy_workload(graph), batch_size=draw(st.integers(1, 3)), optimizer=optimizer, mode=mode)


@st.composite
def cost_tables(draw: st.DrawFn, workload: Workload) -> ToyCosts:
    """Up to three algorithms per kernel, each slower and smaller than the one before."""
    table = {}
    for layer in workload.graph.layers:
        for phase in workload.phases(layer):
            count = draw(st.integers(1, 3))
            seconds = sorted(draw(st.lists(_SECONDS, min_size=count, max_size=count)))
            sizes = sorted(draw(st.lists(st.integers(0, 40), min_size=count, max_size=count)), reverse=True)
            table[layer.index, phase] = tuple(
                KernelCost(f"a{i}", s, size, Origin.ASSUMED)
                for i, (s, size) in enumerate(zip(seconds, sizes, strict=True))
            )
    return ToyCosts(table)


@st.composite
def vdnn_policies(draw: st.DrawFn) -> Policy:
    """The baseline and the policies of vDNN with any options."""
    algorithms = draw(st.sampled_from(Algorithms))
    search = draw(st.sampled_from(PrefetchSearch))
    return draw(
        st.sampled_from(
            (
                Base(algorithms=algorithms),
                VdnnAll(algorithms=algorithms, prefetch_search=search),
                VdnnConv(algorithms=algorithms, prefetch_search=search),
                VdnnDyn(prefetch_search=search),
            )
        )
    )


def paging_policies() -> st.SearchStrategy[PageMigration]:
    latencies = st.sampled_from(("20 us", "35 us", "50 us"))
    return st.builds(PageMigration, algorithms=st.sampled_from(Algorithms), page_latency=latencies)


@st.composite
def swap_policies(draw: st.DrawFn) -> Swap:
    """Swapping as Kim et al. do, with any options that go together."""
    kind, interval, stagger = draw(st.sampled_from((Swap, StaggeredSwap))), draw(st.integers(1, 4)), draw(st.booleans())
    together = [(Synchronization.LAYER, SwapIn.JUST_IN_TIME), *((Synchronization.NONE, each) for each in SwapIn)]
    synchronization, swap_in = draw(st.sampled_from(together))
    return kind(
        algorithms=draw(st.sampled_from(Algorithms)),
        interval=interval,
        stagger=stagger,
        synchronization=synchronization,
        swap_in=swap_in,
    )


ANY_POLICY = vdnn_policies() | paging_policies() | swap_policies()


@st.composite
def servers(draw: st.DrawFn) -> Server:
    """Links from slow to fast, hosts from instant to sluggish."""
    link = Link("link", h2d_bytes_per_s=draw(_RATES), d2h_bytes_per_s=draw(_RATES), latency_s=draw(_SECONDS))
    host = Host(10**9, issue_s=draw(st.sampled_from((0.0, 0.125, 2.0))), pin_latency_s=0.5, pin_bytes_per_s=8.0)
    return replace(TOY_SERVER, link=link, host=host)


@dataclass(frozen=True)
class Case:
    plan: TrainingPlan
    costs: CostModel
    server: Server
    pinned: PinnedMemory = PinnedMemory.ARENA

    def play(self, limits: MemoryLimits = ROOMY) -> IterationTrace:
        check_plan(self.plan)
        placement = placement_of(self.plan, limits)
        return simulate(self.plan, self.costs, self.server, placement, self.pinned)


@st.composite
def cases(draw: st.DrawFn, policies: st.SearchStrategy[Policy] = ANY_POLICY) -> Case:
    """A plan of a random policy for a random network, ready to be replayed."""
    workload = draw(workloads())
    costs = draw(cost_tables(workload))
    # With little memory vDNN_dyn decides otherwise, and paging begins.
    limits = replace(ROOMY, device_bytes=draw(st.sampled_from((400, 1000, 10**9))))
    plan = draw(policies).plan(toy_setting(workload, costs, limits))
    return Case(plan, costs, draw(servers()), draw(st.sampled_from(PinnedMemory)))
