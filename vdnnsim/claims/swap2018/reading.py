"""One way to read what Kim et al. (2018) leave open: options of policies, of the scenario, of the machine."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.hardware.server import Server
from vdnnsim.hardware.topology import Node, NodeKind, Topology
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.plan.operations import Aggregation

_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Reading:
    """A reading; without a name the default one.

    Attributes:
        name: what selects it.
        question: what the paper leaves open, and what is taken by default.
        options: by policy, options that its runs have.
        algorithms: what to set `algorithms` of every policy to, by this name; empty to leave it.
        kept_fraction: of the memory of a GPU that the framework keeps for itself.
        one_root: whether all switches hang on one port of the host.
        framework_s_per_byte: seconds of each iteration, for a byte of weights, that no plan has.
        own_speed: whether kernels take as much longer as the paper's GPUs are slower without swap
            (`vdnnsim.claims.swap2018.speed`), or what DeepBench measured.
    """

    name: str = ""
    question: str = ""
    options: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    algorithms: Mapping[str, str] = field(default_factory=dict)
    gradients: Aggregation = Aggregation.CPU
    memory_model: MemoryModel = MemoryModel.IDEAL
    kept_fraction: float = 0.0
    one_root: bool = False
    framework_s_per_byte: float = 0.0
    own_speed: bool = True

    def change(self, server: Server) -> Server:
        """Return a machine under this reading."""
        kept_bytes = int(self.kept_fraction * server.gpu.memory_bytes)
        changed = replace(server, gpu=replace(server.gpu, memory_bytes=server.gpu.memory_bytes - kept_bytes))
        if not self.one_root or changed.topology is None:
            return changed
        return replace(changed, topology=behind_one_port(changed.topology))

    def framework_s(self, graph: LayerGraph) -> float:
        """Return the seconds that each iteration of a network takes besides its plan."""
        return self.framework_s_per_byte * _FLOAT_BYTES * graph.parameters


def behind_one_port(topology: Topology) -> Topology:
    """Return a tree whose switches share one more, with the link that each of them had for itself."""
    first = next(each for each in topology.nodes if each.kind is NodeKind.SWITCH)
    assert first.link is not None
    root = Node("root", NodeKind.SWITCH, first.parent, replace(first.link, name=f"{first.link.name} root"))
    nodes: list[Node] = []
    for each in topology.nodes:
        if each is first:
            nodes.append(root)
        nodes.append(replace(each, parent="root") if each.kind is NodeKind.SWITCH else each)
    return Topology(tuple(nodes))
