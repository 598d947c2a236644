"""How a way to make a model fit is done: a command, or the lines of Python of a changed loop."""

import re
from collections.abc import Iterator
from math import isqrt
from typing import Final

from vdnnsim.analysis.answer import Change, Way, limit_bytes
from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.training_loops import OPTIMIZERS, Loop, class_of_blocks
from vdnnsim.files.messages import listed
from vdnnsim.policies.checkpoint import equal_segments
from vdnnsim.policies.iterations.segments import is_sequence, modules
from vdnnsim.policies.pytorch import pytorch_loop
from vdnnsim.units import GIB, MIB

_IMPORTS: Final = {
    "partial": "from functools import partial",
    "bitsandbytes": "import bitsandbytes",
    "cross_entropy": "from torch.nn.functional import cross_entropy",
    "checkpoint": "from torch.utils.checkpoint import checkpoint",
}
"""By the name that a line uses."""
_IN_SHELL: Final = "# and in a shell:"
SEARCH: Final = "optimal"
"""Of `apply` by default."""


def how_to(result: ScenarioResult, way: Way) -> str:
    lines = [*_updates(result, way.loop), *_sliced_loss(way.loop)]
    lines += _checkpointed_blocks(result, way.loop)
    if way.loop.precision:
        lines.append('with torch.autocast("cuda", torch.bfloat16):  # around forward and the loss')
    recomputes = way.policy.startswith("checkpoint") and not way.is_applied
    if recomputes:
        lines += _checkpointed(result)
    if way.change is Change.MICRO_BATCHES:
        lines += (
            f"for part in batch.chunk({way.rounds}):",
            f"    (loss_of(model(part)) / {way.rounds}).backward()",
            "optimizer.step(); optimizer.zero_grad()",
        )
    text = "\n".join(lines)
    lines = [line for name, line in _IMPORTS.items() if re.search(rf"\b{name}\b", text)] + lines
    applies_too = recomputes and way.change is Change.MICRO_BATCHES
    if applies_too:
        lines.append("# or with the model as it is, in a shell:")
    policy = "" if way.policy == SEARCH else f" --policy '{way.policy}'"
    if way.is_applied or applies_too:
        nbytes = limit_bytes(result.server.gpu)
        lines += [_IN_SHELL] * bool(lines and not applies_too)
        memory = f"{nbytes / GIB:.1f}GiB" if nbytes >= GIB else f"{nbytes // MIB}MiB"
        lines.append(f"vdnnsim apply --memory {memory}{policy} --hardware {way.hardware} -- python train.py")
    elif way.expandable:
        lines += [_IN_SHELL] * bool(lines)
        # Without a limit no memory is reserved ahead, so that it grows.
        is_plain = recomputes or way.policy.startswith("pytorch")
        applied = "" if is_plain else f"vdnnsim apply{policy} --hardware {way.hardware} -- "
        lines.append(f"PYTORCH_ALLOC_CONF=expandable_segments:True {applied}python train.py")
    elif way.change is Change.BATCH:
        lines.append(f"loader = DataLoader(dataset, batch_size={way.batch_size})")
    elif way.change is Change.SEQUENCE:
        lines.append(f"batch = batch[:, :{way.tokens}]  # or shorter sequences from the data set")
    return "\n".join(lines or ["python train.py"])


def _updates(result: ScenarioResult, loop: Loop) -> Iterator[str]:
    """Yield the lines of another optimizer, or of updates in groups or in backward."""
    if not (loop.optimizer or loop.in_backward or loop.param_groups):
        return
    assert result.captured is not None, "loops are of captured models"
    name, options = OPTIMIZERS[loop.optimizer or result.captured.base.optimizer]
    module = "bitsandbytes.optim" if name.endswith("8bit") else "torch.optim"
    # What decides memory; all else is the user's own.
    words = "".join(f", {key}={value}" for key, value in options.items() if key in ("fused", "foreach", "momentum"))
    if loop.in_backward:
        yield f"optimizers = {{each: {module}.{name}([each]{words}) for each in model.parameters()}}"
        yield "def update(parameter):"
        yield "    optimizers[parameter].step(); optimizers[parameter].zero_grad()"
        yield "for each in model.parameters():"
        yield "    each.register_post_accumulate_grad_hook(update)  # in place of optimizer.step() in the loop"
    elif loop.param_groups:
        yield "parameters, n = list(model.parameters()), " + str(loop.param_groups)
        yield 'groups = [{"params": parameters[start::n]} for start in range(n)]'
        yield f"optimizer = {module}.{name}(groups{words})"
    else:
        yield f"optimizer = {module}.{name}(model.parameters(){words})"


def _sliced_loss(loop: Loop) -> Iterator[str]:
    """Yield the lines of a loss of one slice of the tokens after the other."""
    if not loop.loss_chunks:
        return
    yield "def of_part(x, labels):  # in forward, for `hidden`, the input of the output layer"
    yield '    return cross_entropy(self.head(x).float(), labels, reduction="sum")'
    yield f"parts = zip(hidden.flatten(0, -2).chunk({loop.loss_chunks}), labels.flatten().chunk({loop.loss_chunks}))"
    yield "loss = sum(checkpoint(of_part, *part, use_reentrant=False) for part in parts) / labels.numel()"


def _checkpointed_blocks(result: ScenarioResult, loop: Loop) -> Iterator[str]:
    """Yield the lines that recompute each block, whatever it takes."""
    if loop.checkpointing:
        assert result.captured is not None, "loops are of captured models"
        name = class_of_blocks(result.captured.base).rpartition(".")[2]
        yield "for each in model.modules():"
        yield f'    if type(each).__name__ == "{name}":'
        yield "        each.forward = partial(checkpoint, each.forward, use_reentrant=False)"


def _checkpointed(result: ScenarioResult) -> Iterator[str]:
    """Yield the lines that recompute as the policy does, in the user's forward."""
    workload = pytorch_loop(result.workload, set_to_none=True)
    parts = modules(workload)
    segments = equal_segments(parts, isqrt(len(parts)))
    if isinstance(workload, CapturedWorkload) and is_sequence(workload):
        size = max(1, len(parts) // len(segments))
        yield "def section(x, blocks, *more):  # more: what your blocks take beside x"
        yield "    for block in blocks:"
        yield "        x = block(x, *more)"
        yield "    return x"
        yield f"size, last = {size}, {size * (len(segments) - 1)}  # in forward, in place of the loop over blocks"
        yield "for start in range(0, last, size):"
        yield "    x = checkpoint(section, x, blocks[start : start + size], *more, use_reentrant=False)"
        yield "x = section(x, blocks[last:], *more)"
        return
    layers = workload.graph.layers
    where = listed([f"{layers[each.layers[0]].name} to {layers[each.layers[-1]].name}" for each in segments[:-1]])
    yield f"x = checkpoint(section, x, use_reentrant=False)  # within forward, once for each of {where}"
