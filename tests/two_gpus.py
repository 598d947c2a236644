"""Two toy GPUs behind one switch: their own links and the uplink carry 10 B/s each way, host memory 36 B/s in all."""

from dataclasses import replace

from tests.toy import TOY_SERVER, placement_of, toy_chain, toy_costs, toy_setting, toy_workload
from vdnnsim.engine.simulate import simulate_server
from vdnnsim.hardware.topology import Node, NodeKind, PeerLink, Sharing, Topology, TopologyLink
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.placement import Placement
from vdnnsim.plans.trace import ServerTrace
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.base import Base


def link(name: str, rate: float = 10.0, sharing: Sharing = Sharing.SPLIT_DUPLEX) -> TopologyLink:
    return TopologyLink(name, rate, rate, 0.0, sharing)


TREE = (
    Node("memory", NodeKind.HOST_MEMORY, None, None),
    Node("socket", NodeKind.SOCKET, "memory", link("dram", 36.0, Sharing.SHARED)),
    Node("switch", NodeKind.SWITCH, "socket", link("uplink")),
    Node("gpu0", NodeKind.GPU, "switch", link("x0")),
    Node("gpu1", NodeKind.GPU, "switch", link("x1")),
)
PEERED = Topology(TREE, (PeerLink("gpu0", "gpu1", link("nvlink")),))
SERVER = replace(TOY_SERVER, gpu=replace(TOY_SERVER.gpu, dram_bytes_per_s=18.0), topology=PEERED)
WORKLOAD = toy_workload(toy_chain(1))
COSTS = toy_costs(WORKLOAD, {})
BASE = Base().plan(toy_setting(WORKLOAD, COSTS))


def placed(plan: TrainingPlan) -> tuple[TrainingPlan, Placement]:
    check_plan(plan)
    return plan, placement_of(plan)


def replay_two(plan: TrainingPlan) -> ServerTrace:
    return simulate_server([placed(plan)] * 2, COSTS, SERVER, PinnedMemory.ARENA)
