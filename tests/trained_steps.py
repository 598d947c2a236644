"""Steps of a linear layer under AdamW, in the loops that PyTorch has, and of blocks; made by hand."""

from msgspec.structs import replace

from tests.captured_steps import DW, DY, MAP, WEIGHTS, Recording, W, X, Y
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind, Role
from vdnnsim.dnn.training_loops import LISTS

MIB = 2**20
_B = Phase.BACKWARD


def linear(optimizer: str = "adamw", *, in_backward: bool = False, tokens: int = 1) -> CapturedStep:
    """A head of 8 MiB of weights with 16 MiB of states, 2 MiB for AdamW of 8 bits, and cross entropy of its logits.

    Each token has 1 KiB of hidden ones and 256 KiB of logits, of logarithms and of their gradients. The gradient of the
    weights takes 8 MiB; a foreach update has a temporary of 8 MiB.
    """
    r = Recording("linear", 1, ("head",))
    w = r.memory("head.weight", WEIGHTS, (2 * MIB,), given=True)
    narrow = 8 if "8bit" in optimizer else 1
    state = r.memory("head.weight exp_avg", BufferKind.OPTIMIZER_STATE, (4 * MIB // narrow,), given=True)
    x = r.memory("input", MAP, (tokens, 256), given=True)
    logits, logs = (r.memory(name, MAP, (tokens, MIB // 16)) for name in ("mm", "_log_softmax"))
    loss = r.memory("nll_loss", MAP, (1,), held=True)
    f = Phase.FORWARD
    r.run("mm", "head", f, reads=[(X, x), (W, w)], writes=[(Y, logits)], saves=[x, w])
    r.run("_log_softmax", "", f, reads=[(X, logits)], writes=[(Y, logs)], saves=[logs])
    r.run("nll_loss_forward", "", f, reads=[(X, logs)], writes=[(Y, loss)], saves=[logs])
    gradient = r.memory("_log_softmax_backward_data", BufferKind.GRADIENT_MAP, (tokens, MIB // 16))
    r.run("_log_softmax_backward_data", "", _B, reads=[(Y, logs)], writes=[(Role.INPUT_GRADIENT, gradient)], forward=1)
    dw = r.memory("mm", BufferKind.WEIGHT_GRADIENT, (2 * MIB,), held=not in_backward)
    r.run("mm", "head", _B, reads=[(DY, gradient), (X, x)], writes=[(DW, dw)], forward=0)
    phase = _B if in_backward else Phase.UPDATE
    if optimizer == "adamw":
        root = r.memory("aten._foreach_sqrt.default", BufferKind.WORKSPACE, (2 * MIB,))
        r.run("_foreach_lerp_", "", phase, reads=[(DW, dw)], updates=[(Role.STATE, state)])
        r.run("_foreach_sqrt", "", phase, reads=[(Role.STATE, state)], writes=[(Role.WORKSPACE, root)])
        r.run("_foreach_addcdiv_", "", phase, reads=[(Role.WORKSPACE, root)], updates=[(W, w)])
    else:
        r.run("_fused_adamw_", "", phase, reads=[(DW, dw)], updates=[(W, w), (Role.STATE, state)])
    return replace(r.step(optimizer=optimizer), in_backward=in_backward)


def blocks(batch_size: int, *, checkpointed: bool = False) -> CapturedStep:
    """Eight blocks, each with 1 MiB of weights and as much of their gradient, before a loss of the last one's output.

    Of each sample a block gets 1 MiB, saves it and 4 MiB that it makes of it, and returns 1 MiB. With checkpoints it
    saves its input alone, and makes the 4 MiB again in backward.
    """
    names = [f"layers.{at}.fc" for at in range(8)]
    r = Recording("blocks", batch_size, ("layers", *(f"layers.{at}" for at in range(8)), *names))
    ids = r.memory("input", MAP, (batch_size,), "int64", given=True)
    weights = [r.memory(f"{each}.weight", WEIGHTS, (MIB // 4,), given=True) for each in names]
    small, large = (batch_size, MIB // 4), (batch_size, MIB)
    inputs, wide, f = [r.memory("embedding", MAP, small)], list[int](), Phase.FORWARD
    r.run("embedding", "", f, reads=[(X, ids)], writes=[(Y, inputs[0])])
    for name, w in zip(names, weights, strict=True):
        wide.append(r.memory("mm", MAP, large))
        saves = [inputs[-1], w]
        r.run("mm", name, f, reads=[(X, inputs[-1]), (W, w)], writes=[(Y, wide[-1])], saves=saves)
        inputs.append(r.memory("gelu", MAP, small))
        saves = [] if checkpointed else [wide[-1]]
        r.run("gelu", name, f, reads=[(X, wide[-1])], writes=[(Y, inputs[-1])], saves=saves)
    slope, gradients = r.memory("sum", BufferKind.GRADIENT_MAP, small), list[int]()
    r.run("sum", "", _B, reads=[(Y, inputs[-1])], writes=[(Role.INPUT_GRADIENT, slope)], forward=0)
    for at in reversed(range(8)):
        again = wide[at]
        if checkpointed:
            again = r.memory("mm", MAP, large)
            r.run("mm", names[at], _B, reads=[(X, inputs[at]), (W, weights[at])], writes=[(Y, again)])
        of_wide = r.memory("gelu", BufferKind.GRADIENT_MAP, large)
        reads, writes = [(DY, slope), (X, again)], [(Role.INPUT_GRADIENT, of_wide)]
        r.run("gelu_backward", names[at], _B, reads=reads, writes=writes, forward=2 * at + 2)
        gradients.append(r.memory("mm", BufferKind.WEIGHT_GRADIENT, (MIB // 4,)))
        slope = r.memory("mm", BufferKind.GRADIENT_MAP, small)
        reads, writes = [(DY, of_wide), (X, inputs[at])], [(DW, gradients[-1]), (Role.INPUT_GRADIENT, slope)]
        r.run("mm", names[at], _B, reads=reads, writes=writes, forward=2 * at + 1)
    updates = [(W, each) for each in weights]
    r.run("_fused_sgd_", "", Phase.UPDATE, reads=[(DW, each) for each in gradients], updates=updates)
    step = r.step()
    kinds = {1: LISTS[1], **dict.fromkeys(range(2, 10), "x.Block")}
    modules = (replace(each, kind=kinds.get(at, each.kind)) for at, each in enumerate(step.modules))
    return replace(step, modules=tuple(modules))
