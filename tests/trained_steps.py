"""Steps of a linear layer under AdamW, in the loops that PyTorch has; made by hand."""

import msgspec

from tests.captured_steps import DW, DY, MAP, WEIGHTS, Recording, W, X, Y
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind, Role

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
    return msgspec.structs.replace(r.step(optimizer=optimizer), in_backward=in_backward)
