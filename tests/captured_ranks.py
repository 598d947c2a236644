"""Small captured steps of ranks made by hand, each described in its docstring."""

import msgspec

from tests.captured_steps import DW, DX, DY, GRADIENT, MAP, WEIGHTS, Recording, W, X, Y
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.collective import Collective, CollectiveKind
from vdnnsim.dnn.kernel_work import ProductWork
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.dnn.step import BufferKind, Role


def sharded() -> CapturedStep:
    """Two products as one of two ranks under FSDP, as it runs them; weights of 16 B, of which a rank holds 8.

    Forward of each copies its shard (storages 0, 1) into a buffer (3, 6), gathers there beside the product before,
    copies the weight out (4, 7), and multiplies (5, 8). Buffer 3 is freed after the second gather (operation 5).
    Backward makes 9 (of the result), 10 and 13 (of whole weights), 11 and 14 (to be reduced), 12 and 15 (of shards);
    11 is freed after the backward of the first product (12).
    """
    r = Recording("sharded", 1, ("fc1", "fc2"))
    f, b = Phase.FORWARD, Phase.BACKWARD
    shards = [r.memory(f"{each}.weight", WEIGHTS, (2,), given=True) for each in ("fc1", "fc2")]
    x = r.memory("input", MAP, (1,), given=True)
    product = ProductWork(1, 1, 1, 1)
    inputs, weights = [x], []
    for module, shard in zip(("fc1", "fc2"), shards, strict=True):
        gathered = r.memory("gathered", WEIGHTS, (4,))
        weights.append(r.memory("whole", WEIGHTS, (4,)))
        gather = Collective(CollectiveKind.ALL_GATHER, 16, "float32", ranks=2)
        r.run("copy_in", module, f, reads=[(W, shard)], writes=[(W, gathered)], aside=True)
        r.run("all_gather", module, f, updates=[(W, gathered)], collective=gather, aside=True)
        r.run("copy_out", module, f, reads=[(W, gathered)], writes=[(W, weights[-1])])
        inputs.append(r.memory(module, MAP, (1,), held=module == "fc2"))
        operands = [(X, inputs[-2]), (W, weights[-1])]
        r.run("mm", module, f, reads=operands, writes=[(Y, inputs[-1])], saves=[inputs[-2]], work=product)
    d_y = r.memory("gradient of fc2", GRADIENT, (1,))
    r.run("ones_like", "", b, writes=[(DX, d_y)])
    gradients = []
    for at, module in ((1, "fc2"), (0, "fc1")):
        whole, reduced = (r.memory(each, BufferKind.WEIGHT_GRADIENT, (4,)) for each in ("whole.grad", "reduced"))
        gradients.append(r.memory(f"{module}.weight.grad", BufferKind.WEIGHT_GRADIENT, (2,), held=True))
        reduce = Collective(CollectiveKind.REDUCE_SCATTER, 16, "float32", ranks=2)
        operands = [(DY, d_y), (X, inputs[at])]
        r.run("mm", module, b, reads=operands, writes=[(DW, whole)], forward=3 + 4 * at, work=product)
        r.run("chunk_cat", module, b, reads=[(DW, whole)], writes=[(DW, reduced)])
        r.run(
            *("reduce_scatter", module, b),
            reads=[(DW, reduced)],
            writes=[(DW, gradients[-1])],
            collective=reduce,
            aside=True,
        )
    updated = [(W, each) for each in shards]
    r.run("_foreach_add_", "", Phase.UPDATE, reads=[(DW, each) for each in gradients], updates=updated)
    step = r.step()
    freed_after = {3: 5, 11: 12}
    storages = (
        msgspec.structs.replace(each, freed_after=freed_after.get(number, each.freed_after))
        for number, each in enumerate(step.storages)
    )
    return msgspec.structs.replace(step, storages=tuple(storages))


def counted(step: CapturedStep, flop: dict[str, int]) -> CapturedStep:
    """Return a step whose products have so many FLOPs, by module."""
    operations = (
        msgspec.structs.replace(each, flop={Arithmetic.PRODUCT: flop[step.path_of(each)]} if each.work else {})
        for each in step.operations
    )
    return msgspec.structs.replace(step, operations=tuple(operations))


def gathering(*, again: bool = True) -> CapturedStep:
    """A product and an exponential as one of two ranks under FSDP, which gathers the weight, 16 B, for each phase.

    Forward copies the shard (storage 0), gathers it beside (2), copies the weight out (3), and makes 4 (the product)
    and 5. Backward makes 6 and, of it and 5, 7; gathers (8) and copies out (9) `again`, and reads 4.
    """
    r = Recording("gathering", 1, ("fc", "exp"))
    shard, x = r.memory("fc.weight", WEIGHTS, (2,), given=True), r.memory("input", MAP, (1,), given=True)
    gathered, whole = r.memory("gathered", WEIGHTS, (4,)), r.memory("whole", WEIGHTS, (4,))
    product, result = r.memory("fc", MAP, (4,)), r.memory("exp", MAP, (4,))
    d_y, d_product = (r.memory(each, GRADIENT, (4,)) for each in ("dy", "d fc"))

    def gather(phase: Phase, gathered: int, whole: int) -> None:
        collective = Collective(CollectiveKind.ALL_GATHER, 16, "float32", ranks=2)
        r.run("_foreach_copy_", "fc", phase, reads=[(W, shard)], writes=[(W, gathered)], aside=True)
        r.run("all_gather", "fc", phase, updates=[(W, gathered)], collective=collective, aside=True)
        r.run("fsdp.split_with_sizes_copy", "fc", phase, reads=[(W, gathered)], writes=[(W, whole)])

    f, b = Phase.FORWARD, Phase.BACKWARD
    gather(f, gathered, whole)
    r.run("mm", "fc", f, reads=[(X, x), (W, whole)], writes=[(Y, product)], saves=[product])
    r.run("exp", "exp", f, reads=[(X, product)], writes=[(Y, result)], saves=[result])
    r.run("ones_like", "", b, writes=[(DX, d_y)])
    r.run("mul", "exp", b, reads=[(DY, d_y), (X, result)], writes=[(DX, d_product)], forward=4)
    if again:
        gathered, whole = r.memory("gathered", WEIGHTS, (4,)), r.memory("whole", WEIGHTS, (4,))
        gather(b, gathered, whole)
    d_x = r.memory("dx", GRADIENT, (1,), held=True)
    r.run("mm", "fc", b, reads=[(DY, d_product), (X, product), (W, whole)], writes=[(DX, d_x)], forward=3)
    return r.step()


def staged(n: int = 1) -> tuple[CapturedStep, CapturedStep]:
    """Two products as the stages of two ranks, of two micro-batches by 1F1B, each of N samples.

    Weights are of 4 B, activations of 20 B a sample.

    The first rank runs both forwards, and sends each result before the next, then both backwards, each behind the
    gradient that it receives. The second receives, runs forward and backward, and sends, for each micro-batch. What is
    sent stays to the end.
    """
    first, last = _Stage(0, n), _Stage(1, n)
    for at in range(2):
        first.forward(at)
        first.exchange(CollectiveKind.SEND, Phase.FORWARD, first.results[at])
    for at in range(2):
        received = first.recording.memory("received", MAP, (n, 5), given=True)
        first.exchange(CollectiveKind.RECEIVE, Phase.BACKWARD if at else Phase.FORWARD, received)
        first.backward(at, received)
    for at in range(2):
        last.exchange(CollectiveKind.RECEIVE, Phase.BACKWARD if at else Phase.FORWARD, last.inputs[at])
        last.forward(at)
        made = last.recording.memory("gradient", GRADIENT, (n, 5), held=True)
        last.backward(at, last.results[at], (DX, made))
        last.exchange(CollectiveKind.SEND, Phase.BACKWARD, made)
    return first.step(), last.step()


class _Stage:
    """One product on a rank of two."""

    def __init__(self, position: int, n: int) -> None:
        self.recording = Recording("staged", 2 * n, ("fc",))
        self._n = n
        self._position = position
        self._weight = self.recording.memory("fc.weight", WEIGHTS, (1,), given=True)
        self.inputs = [self.recording.memory("input", MAP, (n, 5), given=True) for _ in range(2)]
        self.results: list[int] = []
        self._forwards: list[int] = []
        self._gradients: list[int] = []

    def forward(self, at: int) -> None:
        self.results.append(self.recording.memory("fc", MAP, (self._n, 5), held=True))
        reads, writes = [(X, self.inputs[at]), (W, self._weight)], [(Y, self.results[at])]
        run = self.recording.run
        self._forwards.append(run("mm", "fc", Phase.FORWARD, reads=reads, writes=writes, saves=[self.inputs[at]]))

    def backward(self, at: int, read: int, *made: tuple[Role, int]) -> None:
        self._gradients.append(self.recording.memory("fc.weight.grad", BufferKind.WEIGHT_GRADIENT, (1,), held=at == 0))
        reads, writes = [(DY, read), (X, self.inputs[at])], [(DW, self._gradients[at]), *made]
        self.recording.run("mm", "fc", Phase.BACKWARD, reads=reads, writes=writes, forward=self._forwards[at])

    def exchange(self, kind: CollectiveKind, phase: Phase, memory: int) -> None:
        collective = Collective(kind, 20 * self._n, "float32", ranks=2, stride=-1 if self._position else 1)
        used = {"reads" if kind is CollectiveKind.SEND else "writes": [(X, memory)]}
        self.recording.run(kind.value, "", phase, **used, collective=collective, aside=True)  # type: ignore[arg-type]

    def step(self) -> CapturedStep:
        total, own = self._gradients
        self.recording.run("add_", "fc", Phase.BACKWARD, updates=[(DW, total)], reads=[(DW, own)])
        self.recording.run("_foreach_add_", "", Phase.UPDATE, reads=[(DW, total)], updates=[(W, self._weight)])
        said = {"parallel": "pp=2", "ranks": 2, "pipeline": 2, "position": self._position, "micro_batches": 2}
        return msgspec.structs.replace(self.recording.step(), **said)


def offloading() -> CapturedStep:
    """One of two ranks whose weight, 8 B, and its gradient are on the host, which updates there."""
    r = Recording("offloading", 1, ("fc1",))
    for name, kind in (("fc1.weight", WEIGHTS), ("gradient", BufferKind.WEIGHT_GRADIENT)):
        r.memory(name, kind, (2,), given=True)
    x, shard = r.memory("input", MAP, (1,), given=True), r.memory("shard", WEIGHTS, (2,))
    y, d_y = r.memory("fc1", MAP, (1,), held=True), r.memory("dy", GRADIENT, (1,))
    d_w, product = r.memory("reduced", BufferKind.WEIGHT_GRADIENT, (2,)), ProductWork(1, 1, 1, 1)
    kinds = ((CollectiveKind.FROM_HOST, 8), (CollectiveKind.TO_HOST, 8), (CollectiveKind.ON_HOST, 36))
    copy, back, work = (Collective(kind, nbytes, "float32", ranks=1) for kind, nbytes in kinds)
    f, b = Phase.FORWARD, Phase.BACKWARD
    r.run("from_host", "fc1", f, writes=[(W, shard)], collective=copy, aside=True)
    r.run("mm", "fc1", f, reads=[(X, x), (W, shard)], writes=[(Y, y)], saves=[x], work=product)
    r.run("ones_like", "", b, writes=[(DX, d_y)])
    r.run("mm", "fc1", b, reads=[(DY, d_y), (X, x)], writes=[(DW, d_w)], forward=1, work=product)
    r.run("to_host", "fc1", b, reads=[(DW, d_w)], collective=back, aside=True)
    r.run("_foreach_add_", "", Phase.UPDATE, collective=work, aside=True)
    step = r.step()
    on_host = (msgspec.structs.replace(each, on_host=number < 2) for number, each in enumerate(step.storages))
    return msgspec.structs.replace(step, storages=tuple(on_host), ranks=2)
