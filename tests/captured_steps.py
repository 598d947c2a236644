"""Small captured steps made by hand, each described in its docstring."""

from collections.abc import Sequence
from math import prod

import msgspec

from tests.toy import server_with
from vdnnsim.dnn.captured_step import VERSION, CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.collective import Collective
from vdnnsim.dnn.kernel_work import ConvolutionWork, ProductWork
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.dnn.step import ELEMENT_BYTES, Access, BufferKind, Module, Operand, Role, StepOperation, Storage, Tensor
from vdnnsim.dnn.workload import Mode
from vdnnsim.memory.choices import MemoryChoice, MemoryModel, PinnedMemory
from vdnnsim.scenario.simulator import Simulator
from vdnnsim.units import Precision

MAP, GRADIENT, WEIGHTS = BufferKind.FEATURE_MAP, BufferKind.GRADIENT_MAP, BufferKind.WEIGHTS
X, Y, DY, DX, W, DW = (
    *(Role.INPUT, Role.OUTPUT, Role.OUTPUT_GRADIENT, Role.INPUT_GRADIENT),
    *(Role.WEIGHTS, Role.WEIGHT_GRADIENT),
)


class Recording:
    """Builds a step; each storage has one tensor, of the same number, that covers it."""

    def __init__(self, model: str, batch_size: int, modules: Sequence[str]) -> None:
        self._model, self._batch_size, self._modules = model, batch_size, ("", *modules)
        self._storages: list[Storage] = []
        self._tensors: list[Tensor] = []
        self._operations: list[StepOperation] = []
        self._held: set[int] = set()

    def memory(
        self,
        name: str,
        kind: BufferKind,
        shape: tuple[int, ...],
        element_type: str = "float32",
        *,
        given: bool = False,
        held: bool = False,
        constant: bool = False,
    ) -> int:
        """Return the number of a new storage; given and held ones are not freed within the iteration."""
        nbytes = prod(shape) * ELEMENT_BYTES[element_type]
        self._storages.append(Storage(name, kind, nbytes, element_type, given, constant=constant))
        self._tensors.append(Tensor(len(self._tensors), shape, element_type))
        if given or held:
            self._held.add(len(self._storages) - 1)
        return len(self._storages) - 1

    def run(  # noqa: PLR0913 - one for each property of an operation
        self,
        name: str,
        module: str,
        phase: Phase,
        *,
        reads: Sequence[tuple[Role, int]] = (),
        writes: Sequence[tuple[Role, int]] = (),
        updates: Sequence[tuple[Role, int]] = (),
        forward: int | None = None,
        saves: Sequence[int] = (),
        flop: int = 0,
        work: ConvolutionWork | ProductWork | None = None,
        collective: Collective | None = None,
        aside: bool = False,
    ) -> int:
        """Return the number of a new operation, which moves its operands once, what it updates twice."""
        accesses = ((reads, Access.READ), (updates, Access.UPDATE), (writes, Access.WRITE))
        operands = tuple(Operand(role, each, how) for those, how in accesses for role, each in those)
        moved = (self._storages[each.memory].nbytes * (1 + (each.access is Access.UPDATE)) for each in operands)
        arithmetic = Arithmetic.PRODUCT if work else Arithmetic.ELEMENTWISE
        self._operations.append(
            StepOperation(
                name=name if "." in name else f"aten.{name}.default",
                module=self._modules.index(module),
                phase=phase,
                operands=operands,
                element_type="float32",
                flop={arithmetic: flop},
                bytes_moved=0 if name == "view" else sum(moved),
                forward=forward,
                saves=tuple(saves),
                work=work,
                collective=collective,
                aside=aside,
            )
        )
        return len(self._operations) - 1

    def step(self, mode: Mode = Mode.TRAINING, optimizer: str = "sgd") -> CapturedStep:
        last = {self._tensors[x.memory].storage: at for at, each in enumerate(self._operations) for x in each.operands}
        return CapturedStep(
            version=VERSION,
            model=self._model,
            framework="torch 2.13.0",
            device="cuda 8.9",
            batch_size=self._batch_size,
            sample="image",
            sample_elements=1,
            mode=mode,
            precision=Precision.FLOAT32,
            optimizer=optimizer,
            parameters=sum(each.nbytes // 4 for each in self._storages if each.kind is WEIGHTS),
            modules=tuple(Module(path, f"torch.nn.{path or 'Module'}") for path in self._modules),
            storages=tuple(
                msgspec.structs.replace(each, freed_after=None if number in self._held else last[number])
                for number, each in enumerate(self._storages)
            ),
            tensors=tuple(self._tensors),
            operations=tuple(self._operations),
        )


def chain(n: int = 2) -> CapturedStep:
    """N images of 1x2x2: conv, bn, relu in place, pool, a change of shape, fc, a loss of two operations; SGD.

    Storages 0 to 2 are weights of 4 B; 3 images (16 B each), 4 labels (8 B each). Forward makes 5 (conv), 6 (bn
    and relu) of 16 B an image, 7 (moments, 8 B), 8 (pool, 4 B), 9 (its indices, 8 B), 10 (fc, 4 B), 11 (logarithms,
    4 B) and 12 (the loss, 4 B, held to the end). Backward makes 13 to 16, 18 to 20, and weight gradients 17, 21, 22.
    """
    r = Recording("chain", n, ("conv", "bn", "relu", "pool", "fc"))
    conv_w, bn_w, fc_w = (r.memory(f"{each}.weight", WEIGHTS, (1,), given=True) for each in ("conv", "bn", "fc"))
    images = r.memory("input", MAP, (n, 1, 2, 2), given=True)
    labels = r.memory("labels", BufferKind.LABELS, (n,), "int64", given=True)
    convolution, product = ConvolutionWork(n, 1, 1, (2, 2), (1, 1), (1, 1), (0, 0), (1, 1), 1), ProductWork(1, n, 1, 1)
    f, b = Phase.FORWARD, Phase.BACKWARD

    conv = r.memory("conv", MAP, (n, 1, 2, 2))
    inputs, saves, flop = [(X, images), (W, conv_w)], [images, conv_w], 8 * n
    r.run("convolution", "conv", f, reads=inputs, writes=[(Y, conv)], saves=saves, flop=flop, work=convolution)
    bn = r.memory("bn", MAP, (n, 1, 2, 2))
    moments = r.memory("moments", BufferKind.STATISTICS, (2,))
    r.run(
        *("native_batch_norm", "bn", f),
        reads=[(X, conv), (W, bn_w)],
        writes=[(Y, bn), (Role.STATISTICS, moments)],
        saves=[conv, bn_w, moments],
    )
    r.run("relu_", "relu", f, updates=[(X, bn)], saves=[bn])
    pool = r.memory("pool", MAP, (n, 1, 1, 1))
    indices = r.memory("indices", BufferKind.STATISTICS, (n,), "int64")
    r.run(
        *("max_pool2d_with_indices", "pool", f),
        reads=[(X, bn)],
        writes=[(Y, pool), (Role.STATISTICS, indices)],
        saves=[bn, indices],
    )
    r.run("view", "", f, reads=[(X, pool)])
    fc = r.memory("fc", MAP, (n, 1))
    inputs, saves = [(X, pool), (W, fc_w)], [pool, fc_w]
    r.run("addmm", "fc", f, reads=inputs, writes=[(Y, fc)], saves=saves, flop=2 * n, work=product)
    logs = r.memory("logs", MAP, (n, 1))
    r.run("_log_softmax", "", f, reads=[(X, fc)], writes=[(Y, logs)], saves=[logs], flop=4 * n)
    loss, inputs = r.memory("loss", MAP, (1,), held=True), [(X, logs), (Role.LABELS, labels)]
    r.run("nll_loss_forward", "", f, reads=inputs, writes=[(Y, loss)], saves=[logs, labels])

    def gradient(name: str, *shape: int) -> int:
        return r.memory(f"gradient of {name}", GRADIENT, shape)

    def weight_gradient(name: str) -> int:
        return r.memory(f"{name}.weight.grad", BufferKind.WEIGHT_GRADIENT, (1,), held=True)

    ones = gradient("loss", 1)
    r.run("ones_like", "", b, writes=[(DX, ones)])
    d_logs = gradient("logs", n, 1)
    r.run("nll_loss_backward", "", b, reads=[(DY, ones), *inputs], writes=[(DX, d_logs)], forward=7)
    d_fc = gradient("fc", n, 1)
    r.run("_log_softmax_backward_data", "", b, reads=[(DY, d_logs), (Y, logs)], writes=[(DX, d_fc)], forward=6)
    d_pool = gradient("pool", n, 1)
    r.run("mm", "fc", b, reads=[(DY, d_fc), (W, fc_w)], writes=[(DX, d_pool)], forward=5, flop=2 * n, work=product)
    d_fc_w = weight_gradient("fc")
    r.run("mm", "fc", b, reads=[(DY, d_fc), (X, pool)], writes=[(DW, d_fc_w)], forward=5, flop=2 * n, work=product)
    d_relu, inputs = gradient("relu", n, 1, 2, 2), [(DY, d_pool), (X, bn), (Role.STATISTICS, indices)]
    r.run("max_pool2d_with_indices_backward", "pool", b, reads=inputs, writes=[(DX, d_relu)], forward=3)
    d_bn = gradient("bn", n, 1, 2, 2)
    r.run("threshold_backward", "relu", b, reads=[(DY, d_relu), (Y, bn)], writes=[(DX, d_bn)], forward=2)
    d_conv, d_bn_w = gradient("conv", n, 1, 2, 2), weight_gradient("bn")
    inputs = [(DY, d_bn), (X, conv), (W, bn_w), (Role.STATISTICS, moments)]
    r.run("native_batch_norm_backward", "bn", b, reads=inputs, writes=[(DX, d_conv), (DW, d_bn_w)], forward=1)
    d_conv_w = weight_gradient("conv")
    inputs, made = [(DY, d_conv), (X, images)], [(DW, d_conv_w)]
    r.run("convolution_backward", "conv", b, reads=inputs, writes=made, forward=0, flop=flop, work=convolution)
    gradients = [(DW, each) for each in (d_conv_w, d_bn_w, d_fc_w)]
    weights = [(W, each) for each in (conv_w, bn_w, fc_w)]
    r.run("_foreach_add_", "", Phase.UPDATE, reads=gradients, updates=weights, flop=6)
    return r.step()


def residual() -> CapturedStep:
    """A stem, and a block: conv1, relu, conv2, an addition in place of what went in, the same relu in place; a mean.

    All maps are of 4 B: storage 3 is the input, 4 the stem's, 5 that of conv1, 6 of relu, 7 of conv2, the addition and
    the second relu, 8 the mean. Backward makes 9 (of the mean), 10 (of the sum, which goes on to conv2 and to the
    stem), 11 (of relu), 12 (of conv1), 13 (of the stem, by conv1), to which an operation of no forward adds 10.
    Weight gradients are 14 to 16.
    """
    r = Recording("residual", 1, ("stem", "layer1.0", "layer1.0.conv1", "layer1.0.conv2", "layer1.0.relu"))
    paths = ("stem", "layer1.0.conv1", "layer1.0.conv2")
    stem_w, w1, w2 = (r.memory(f"{path}.weight", WEIGHTS, (1,), given=True) for path in paths)
    f, b = Phase.FORWARD, Phase.BACKWARD
    x = r.memory("input", MAP, (1,), given=True)
    stem, conv1, relu, conv2 = (r.memory(name, MAP, (1,)) for name in ("stem", "conv1", "relu", "conv2"))
    loss = r.memory("mean", MAP, (1,), held=True)
    r.run("convolution", "stem", f, reads=[(X, x), (W, stem_w)], writes=[(Y, stem)], saves=[x, stem_w])
    r.run("convolution", "layer1.0.conv1", f, reads=[(X, stem), (W, w1)], writes=[(Y, conv1)], saves=[stem, w1])
    r.run("relu", "layer1.0.relu", f, reads=[(X, conv1)], writes=[(Y, relu)], saves=[relu])
    r.run("convolution", "layer1.0.conv2", f, reads=[(X, relu), (W, w2)], writes=[(Y, conv2)], saves=[relu, w2])
    r.run("add_", "layer1.0", f, updates=[(X, conv2)], reads=[(X, stem)])
    r.run("relu_", "layer1.0.relu", f, updates=[(X, conv2)], saves=[conv2])
    r.run("mean", "", f, reads=[(X, conv2)], writes=[(Y, loss)])
    names = ("mean", "sum", "relu", "conv1", "stem")
    d_mean, d_sum, d_relu, d_conv1, d_stem = (r.memory(f"gradient of {name}", GRADIENT, (1,)) for name in names)
    d_stem_w, d_w1, d_w2 = (
        r.memory(f"{path}.weight.grad", BufferKind.WEIGHT_GRADIENT, (1,), held=True) for path in paths
    )
    r.run("expand", "", b, writes=[(DX, d_mean)], forward=6)
    r.run("threshold_backward", "layer1.0.relu", b, reads=[(DY, d_mean), (Y, conv2)], writes=[(DX, d_sum)], forward=5)
    inputs, made = [(DY, d_sum), (X, relu), (W, w2)], [(DX, d_relu), (DW, d_w2)]
    r.run("convolution_backward", "layer1.0.conv2", b, reads=inputs, writes=made, forward=3)
    r.run("threshold_backward", "layer1.0.relu", b, reads=[(DY, d_relu), (Y, relu)], writes=[(DX, d_conv1)], forward=2)
    inputs, made = [(DY, d_conv1), (X, stem), (W, w1)], [(DX, d_stem), (DW, d_w1)]
    r.run("convolution_backward", "layer1.0.conv1", b, reads=inputs, writes=made, forward=1)
    r.run("add_", "", b, updates=[(DX, d_stem)], reads=[(DY, d_sum)])
    r.run("convolution_backward", "stem", b, reads=[(DY, d_stem), (X, x)], writes=[(DW, d_stem_w)], forward=0)
    return r.step(optimizer="none")


def checkpointed() -> CapturedStep:
    """A block of fc and relu that is recomputed in backward, and a head; all activations of 4 B.

    The recomputed operations (5, 6) are of relu (1), and backward (7, 8) is of them.
    Storages: 0, 1 weights, 2 the input, 3 fc, 4 relu, 5 the head's output. Backward makes 6 (of the head), 7 (of relu),
    8 and 9 (fc and relu again), 10 (of fc), and 11, 12 (weight gradients of head and block).
    """
    r = Recording("checkpointed", 1, ("block", "block.fc", "block.relu", "head"))
    fc_w, head_w = (r.memory(name, WEIGHTS, (1,), given=True) for name in ("block.fc.weight", "head.weight"))
    f, b = Phase.FORWARD, Phase.BACKWARD
    x = r.memory("input", MAP, (1,), given=True)
    fc, relu = r.memory("fc", MAP, (1,)), r.memory("relu", MAP, (1,))
    product = ProductWork(1, 1, 1, 1)
    r.run("mm", "block.fc", f, reads=[(X, x), (W, fc_w)], writes=[(Y, fc)], saves=[x], work=product)
    r.run("relu", "block.relu", f, reads=[(X, fc)], writes=[(Y, relu)])
    y = r.memory("head", MAP, (1,), held=True)
    r.run("mm", "head", f, reads=[(X, relu), (W, head_w)], writes=[(Y, y)], saves=[relu, head_w], work=product)
    d_y, d_relu = r.memory("gradient of head", GRADIENT, (1,)), r.memory("gradient of relu", GRADIENT, (1,))
    fc_again, relu_again = r.memory("fc again", MAP, (1,)), r.memory("relu again", MAP, (1,))
    d_fc = r.memory("gradient of fc", GRADIENT, (1,))
    d_head_w, d_fc_w = (
        r.memory(f"{each}.weight.grad", BufferKind.WEIGHT_GRADIENT, (1,), held=True) for each in ("head", "block.fc")
    )
    r.run("ones_like", "", b, writes=[(DX, d_y)])
    inputs, made = [(DY, d_y), (X, relu), (W, head_w)], [(DX, d_relu), (DW, d_head_w)]
    r.run("mm", "head", b, reads=inputs, writes=made, forward=2, work=product)
    r.run("mm", "block.fc", b, reads=[(X, x), (W, fc_w)], writes=[(Y, fc_again)], forward=1, work=product)
    r.run("relu", "block.relu", b, reads=[(X, fc_again)], writes=[(Y, relu_again)], forward=1, saves=[relu_again])
    r.run("threshold_backward", "block.relu", b, reads=[(DY, d_relu), (Y, relu_again)], writes=[(DX, d_fc)], forward=6)
    r.run("mm", "block.fc", b, reads=[(DY, d_fc), (X, x)], writes=[(DW, d_fc_w)], forward=5, work=product)
    return r.step(optimizer="none")


def sequences(tokens: int, square: int | None = None) -> CapturedStep:
    """Two sequences of t tokens: the chain, whose convolution makes 16 t bytes, its normalization 8 t t or so many."""
    step = chain(2)
    sizes = {5: 16 * tokens, 6: 8 * tokens**2 if square is None else square}
    storages = (
        msgspec.structs.replace(each, nbytes=sizes.get(number, each.nbytes))
        for number, each in enumerate(step.storages)
    )
    return msgspec.structs.replace(step, sample="sequence", sample_elements=tokens, storages=tuple(storages))


def simulator(step: CapturedStep, model: MemoryChoice = MemoryModel.PYTORCH) -> Simulator:
    """The step on the toy machine, on which a launch takes 1 s."""
    return Simulator.of(CapturedWorkload.of(step), server_with({"launch_overhead_s": 1.0}), model, PinnedMemory.ARENA)
