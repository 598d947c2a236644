"""Plans written as short scripts: `take x; write x; compute>memory; offload x`."""

from dataclasses import replace

from tests.plan_writer import PlanWriter
from tests.refusals import refusal as refused_with
from tests.toy import touching, toy_chain, toy_workload
from vdnnsim.dnn.layers import Phase, Stage
from vdnnsim.errors import PlanError
from vdnnsim.plans.check import check_plan
from vdnnsim.plans.operations import Aggregation, AllReduce, HostSynchronize, Operation, Stream
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan

F, W = Phase.FORWARD, Phase.BACKWARD_WEIGHTS
COMPUTE, MEMORY = Stream.COMPUTE, Stream.MEMORY
WORKLOAD = toy_workload(toy_chain(1))
ROUND_TRIP = (
    "take x; write x; compute>memory; offload x; memory>compute; free x; "
    "take x; compute>memory; prefetch x; memory>compute; read x; free x"
)


class _Script:
    """A plan in the making; its methods are the verbs of `script`, given a buffer, bytes of it, and all buffers."""

    def __init__(self) -> None:
        self.writer = PlanWriter(WORKLOAD)
        self.buffers: dict[str, int] = {}
        self.on_host: set[int] = set()

    def buffer(self, word: str, *, given: bool) -> tuple[int, range | None]:
        name, _, extent = word.rstrip("]").partition("[")
        label, _, nbytes = name.partition("=")
        if label not in self.buffers:
            size = int(nbytes or 10)
            self.buffers[label] = self.writer.buffer(label, BufferKind.FEATURE_MAP, size, Stage.FEATURES, given=given)
        return self.buffers[label], range(*map(int, extent.split(":"))) if extent else None

    def take(self, x: int, extent: range | None, _: list[int]) -> None:
        if extent is None:
            self.writer.allocate(x, 0, F)
        else:
            self.writer.allocate_extent(x, extent, 0, W)

    given = take

    def host(self, x: int, _extent: range | None, _: list[int]) -> None:
        self.on_host.add(x)

    def free(self, x: int, extent: range | None, _: list[int]) -> None:
        if extent is None:
            self.writer.release(x)
        else:
            self.writer.release_extent(x, extent)

    def lay(self, x: int, _extent: range | None, named: list[int]) -> None:
        self.writer.alias(x, named[1])

    def write(self, _x: int, _extent: range | None, named: list[int]) -> None:
        self.writer.compute(0, F, "only", touching(writes=named))

    def read(self, _x: int, _extent: range | None, named: list[int]) -> None:
        self.writer.compute(0, W, "only", touching(reads=named))

    def turn(self, x: int, _extent: range | None, named: list[int]) -> None:
        self.writer.compute(0, W, "only", touching(reads=[x], writes=named[1:]))

    def offload(self, x: int, extent: range | None, _: list[int]) -> None:
        self.writer.offload(x, 0, extent=extent)

    def prefetch(self, x: int, extent: range | None, _: list[int]) -> None:
        self.writer.prefetch(x, 0, on_demand=False, extent=extent)

    def keep(self, x: int, extent: range | None, _: list[int]) -> None:
        self.writer.prefetch(x, 0, on_demand=False, keeps_copy=True, extent=extent)

    def exchange(self, _x: int, _extent: range | None, named: list[int]) -> None:
        self.writer.add(AllReduce(0, tuple(named), 0, Aggregation.CPU))


def script(text: str) -> TrainingPlan:
    """Return the plan of statements on buffers of 10 B, or of 11 as in `y=11`, or on their bytes as in `x[0:4]`.

    `given` and `host` declare buffers with content on the GPU, which are allocated, and on the host; in `turn x y` a
    kernel reads x and writes y; `a>b` lets stream b wait for all issued to a, `mark a` records an event, `wait 0 b`
    waits for one, `sync` synchronizes the host.
    """
    made = _Script()
    for statement in filter(None, map(str.strip, text.split(";"))):
        verb, *words = statement.split()
        if ">" in verb:
            first, then = map(Stream, verb.split(">"))
            made.writer.wait(made.writer.record(first), then)
        elif verb == "mark":
            made.writer.record(Stream(words[0]))
        elif verb == "wait":
            made.writer.wait(int(words[0]), Stream(words[1]))
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
