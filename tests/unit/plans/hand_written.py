"""Plans written as short scripts: `take x; write x; compute>memory; offload x`."""

from dataclasses import replace

from tests.refusals import refusal as refused_with
from tests.toy import touching, toy_chain, toy_workload
from vdnnsim.dnn.collective import Collective, CollectiveKind
from vdnnsim.dnn.layers import Phase, Stage
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import PlanError
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import (
    Aggregation,
    Alias,
    Allocate,
    AllocateExtent,
    AllReduce,
    Communicate,
    Compute,
    HostSynchronize,
    Offload,
    Operation,
    Prefetch,
    Release,
    ReleaseExtent,
    Stream,
    WaitEvent,
)
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan
from vdnnsim.plans.writer import PlanWriter

F, W = Phase.FORWARD, Phase.BACKWARD_WEIGHTS
COMPUTE, MEMORY = Stream.COMPUTE, Stream.MEMORY
WORKLOAD = toy_workload(toy_chain(1))
ROUND_TRIP = (
    "take x; write x; compute>memory; offload x; memory>compute; free x; "
    "take x; compute>memory; prefetch x; memory>compute; read x; free x"
)


KINDS = {"W": BufferKind.WEIGHTS, "dW": BufferKind.WEIGHT_GRADIENT, "M": BufferKind.OPTIMIZER_STATE}
GATHER = Collective(CollectiveKind.ALL_GATHER, 10, "float32", ranks=2)


class _Script:
    """A plan in the making; its methods are the verbs of `script`, given a buffer, bytes of it, and all buffers."""

    def __init__(self, workload: Workload, unit: int) -> None:
        self.unit = unit
        self.writer = PlanWriter(workload)
        self.buffers: dict[str, int] = {}
        self.on_host: set[int] = set()
        self.layer, self.phase, self.copy = 0, F, 0

    def modify(self, words: list[str]) -> list[str]:
        """Read where a statement is, as in `@1W` and `#1`, and return its other words."""
        at = {each[0]: each[1:] for each in words if each[0] in "@#"}
        layer = at.get("@", "0")
        self.layer, self.phase, self.copy = int(layer[0]), W if layer[1:] else F, int(at.get("#", "0"))
        return [each for each in words if each[0] not in "@#"]

    def buffer(self, word: str, *, given: bool) -> tuple[int, range | None]:
        name, _, extent = word.rstrip("]").partition("[")
        label, _, nbytes = name.partition("=")
        if label not in self.buffers:
            kind = KINDS.get(label.rstrip("0123456789"), BufferKind.FEATURE_MAP)
            self.buffers[label] = self.writer.buffer(
                label, kind, int(nbytes or 10) * self.unit, Stage.FEATURES, given=given
            )
        return self.buffers[label], range(*map(int, extent.split(":"))) if extent else None

    def take(self, x: int, extent: range | None, _: list[int]) -> None:
        if extent is None:
            self.writer.add(Allocate(x, self.layer, self.phase))
        else:
            self.writer.add(AllocateExtent(x, extent, self.layer, W))

    given = take

    def host(self, x: int, _extent: range | None, _: list[int]) -> None:
        self.on_host.add(x)

    def free(self, x: int, extent: range | None, _: list[int]) -> None:
        if extent is None:
            self.writer.add(Release(x))
        else:
            self.writer.add(ReleaseExtent(x, extent))

    def lay(self, x: int, _extent: range | None, named: list[int]) -> None:
        self.writer.add(Alias(x, named[1]))

    def write(self, _x: int, _extent: range | None, named: list[int]) -> None:
        self.writer.add(Compute(self.layer, self.phase, "only", touching(writes=named)))

    def read(self, _x: int, _extent: range | None, named: list[int]) -> None:
        self.writer.add(Compute(self.layer, W, "only", touching(reads=named)))

    def turn(self, x: int, _extent: range | None, named: list[int]) -> None:
        self.writer.add(Compute(self.layer, W, "only", touching(reads=[x], writes=named[1:])))

    def update(self, _x: int, _extent: range | None, named: list[int]) -> None:
        self.writer.add(Compute(self.layer, Phase.UPDATE, "only", touching(reads=named)))

    def offload(self, x: int, extent: range | None, _: list[int]) -> None:
        self.writer.add(Offload(x, self.layer, self.phase, copy=self.copy, extent=extent))

    def prefetch(self, x: int, extent: range | None, _: list[int]) -> None:
        self.writer.add(Prefetch(x, self.layer, on_demand=False, copy=self.copy, extent=extent))

    def keep(self, x: int, extent: range | None, _: list[int]) -> None:
        self.writer.add(Prefetch(x, self.layer, on_demand=False, keeps_copy=True, extent=extent))

    def exchange(self, _x: int, _extent: range | None, named: list[int]) -> None:
        self.writer.add(AllReduce(0, tuple(named), 0, Aggregation.CPU))

    def gather(self, x: int, _extent: range | None, named: list[int]) -> None:
        operands = touching(reads=[x], writes=named[1:])
        self.writer.add(Communicate(0, F, "only", operands, 0, GATHER, Stream.COMMUNICATION))


def script(text: str, workload: Workload = WORKLOAD, unit: int = 1) -> TrainingPlan:
    """Return the plan of statements on buffers of 10 B, or of 11 as in `y=11`, or on their bytes as in `x[0:4]`.

    `given` and `host` declare buffers with content on the GPU, which are allocated, and on the host. Kernels of
    forward, backward and update are `write`, `read` and `update`; in `turn x y` one of backward reads x and writes y,
    and in `gather x y` a collective. `a>b` lets stream b wait for all issued to a, `mark a` records an event, `wait 0
    b` waits for one, `sync` synchronizes the host. A statement is of layer 0 in forward, `@1` of layer 1, `@1W` in its
    backward; `#1` names one of several copies. W and W1 hold weights, dW and dW1 their gradients, M a state of the
    optimizer, and others maps. Sizes are in bytes or another unit.
    """
    made = _Script(workload, unit)
    for statement in filter(None, map(str.strip, text.split(";"))):
        verb, *words = statement.split()
        words = made.modify(words)
        if ">" in verb:
            first, then = map(Stream, verb.split(">"))
            made.writer.add(WaitEvent(made.writer.record(first), then))
        elif verb == "mark":
            made.writer.record(Stream(words[0]))
        elif verb == "wait":
            made.writer.add(WaitEvent(int(words[0]), Stream(words[1])))
        elif verb == "sync":
            made.writer.add(HostSynchronize(tuple(map(Stream, words)) or (COMPUTE, MEMORY)))
        else:
            named = [made.buffer(each, given=verb in ("given", "host")) for each in words]
            getattr(made, verb)(*named[0], [each for each, _ in named])
    plan = made.writer.finish("hand", "m")
    buffers = (replace(each, given_on_host=at in made.on_host) for at, each in enumerate(plan.buffers))
    return replace(plan, buffers=tuple(buffers))


def refusal(plan: TrainingPlan) -> str:
    return refused_with(PlanError, check_plan, plan)


def with_operations(plan: TrainingPlan, operations: list[Operation]) -> TrainingPlan:
    return replace(plan, operations=tuple(operations))
