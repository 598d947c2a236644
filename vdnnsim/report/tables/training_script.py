"""A training script of a captured model in lines of Python: its beginning, and its step as a way changes it."""

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from msgspec.structs import replace

from vdnnsim.analysis.answer import Change, Way
from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.training_loops import OPTIMIZERS, Loop, checkpointed_classes
from vdnnsim.dnn.workload import Mode
from vdnnsim.units import Precision

_IMPORTS: Final = {
    "partial": "from functools import partial",
    "pairwise": "from itertools import pairwise",
    "bitsandbytes": "import bitsandbytes",
    "cross_entropy": "from torch.nn.functional import cross_entropy",
    "pad": "from torch.nn.functional import pad",
    "checkpoint": "from torch.utils.checkpoint import checkpoint",
}
"""By the name that a line uses."""
_INDENT: Final = "    "
_YOUR_LOSS: Final = "your_loss("
_SCALER: Final = 'scaler = torch.amp.GradScaler("cuda")'


def step_of(result: ScenarioResult) -> CapturedStep:
    assert result.captured is not None, "scripts are of captured models"
    return result.captured.base


def script_begin(result: ScenarioResult) -> str:
    """Return the lines that make model, optimizer and batch, and define `loss_of`, in inference `output_of`.

    What the user alone knows is a comment.
    """
    step, text = step_of(result), step_of(result).program
    made = optimizer_line(step, Loop()) if _updates_at_end(step) else ""
    blocks = list(_as_captured(step))
    lines = ["import torch", *text.imports, *imports_of("\n".join([made, *blocks])), ""]
    if text.model:
        yours = [f"{name} = {each}  # yours" for name, each in (("batch", text.batch), ("labels", text.labels)) if each]
        has_room = step.parameter_bytes <= result.server.gpu.memory_bytes
        if has_room and step.precision.element_type.nbytes > 2:
            yours = [f"model = {text.model}", *yours]
        else:
            # It is made in float32, for which the GPU may have no room.
            lines.append(f"model = {text.model}")
            lines += ['model.to("cuda")'] * has_room
        lines.append('with torch.device("cuda"):')
        lines += [_INDENT + each for each in yours]
    else:
        lines.append(f"# yours, on the GPU: model, {_arguments(step)}")
    lines += blocks
    if step.parallel:
        lines.append(f"# yours: the model of a rank, spread as {step.parallel}")
    if made:
        lines.append(made)
        lines += [_SCALER] * _is_scaled(step, step.precision)
    body = _loss(step)
    if step.mode is Mode.INFERENCE:
        body = body.removeprefix(_YOUR_LOSS).removesuffix(")" * body.startswith(_YOUR_LOSS))
    return "\n".join([*lines, "", *definition(step, (f"return {body}",))])


def checkpointed(step: CapturedStep, classes: Collection[str]) -> Iterator[str]:
    """Yield the lines that recompute each module of these classes, whatever it takes."""
    names = [f'"{each.rpartition(".")[2]}"' for each in classes]
    yield from without_cache(step)
    yield "for each in model.modules():"
    test = f"in ({', '.join(names)})" if len(names) > 1 else f"== {names[0]}"
    yield f"    if type(each).__name__ {test}:"
    yield "        each.forward = partial(checkpoint, each.forward, use_reentrant=False)"


def without_cache(step: CapturedStep) -> Iterator[str]:
    """Yield the line without which the keys and values of transformers would grow as blocks run again."""
    if step.modules[0].kind.startswith("transformers."):
        yield "model.config.use_cache = False"


def _as_captured(step: CapturedStep) -> Iterator[str]:
    """Yield the lines that checkpoint the blocks of a model as they were captured; of a part of them a comment."""
    if step.program.checkpointing == "full" and (classes := checkpointed_classes(step)):
        yield from checkpointed(step, classes)
    elif step.program.checkpointing:
        yield f"# yours: blocks checkpointed as by --checkpointing {step.program.checkpointing}"


def imports_of(text: str) -> Iterator[str]:
    """Yield the lines that import what lines of Python use."""
    yield from (line for name, line in _IMPORTS.items() if re.search(rf"\b{name}\b", text))


def definition(step: CapturedStep, body: Iterable[str]) -> Iterator[str]:
    """Yield the definition of the loss, or in inference of the output, under autocast where that was captured."""
    yield f"def {_function(step)}({_arguments(step)}):"
    contexts = ["torch.no_grad()"] * (step.mode is Mode.INFERENCE)
    if narrow := step.precision.autocast:
        contexts.append(f'torch.autocast("cuda", torch.{narrow.value})')
    if contexts:
        yield f"{_INDENT}with {', '.join(contexts)}:"
    for each in body:
        comment = "  # yours, of what the model returns" if _YOUR_LOSS in each else ""
        yield _INDENT * (2 if contexts else 1) + each + comment


def in_precision(step: CapturedStep, loop: Loop) -> CapturedStep:
    """Return the step with the precision of a loop in place of an autocast that was captured."""
    if not (loop.precision and step.precision.autocast):
        return step
    return replace(step, precision=Precision(loop.precision))


def retyped(step: CapturedStep, loop: Loop, *, defines: bool) -> Iterator[str]:
    """Yield what puts a precision in the place of a captured autocast, with the definition of the loss if asked to."""
    there = in_precision(step, loop)
    if there is step:
        return
    if not there.precision.autocast:
        yield f'model.to("cuda", torch.{there.precision.value})'
    if defines:
        yield from definition(there, (f"return {_loss(step)}",))


def definition_as_module(step: CapturedStep, head: str, cast: str, body: Iterable[str]) -> Iterator[str]:
    """Yield a module that returns the loss, made of slices of cast logits, and call it by the name of the function."""
    forward = list(definition(step, ("model, of_part = self.model, self.of_part", *body)))
    yield "class ModelWithLoss(torch.nn.Module):"
    methods = (
        "def __init__(self):",
        f"{_INDENT}super().__init__()",
        f"{_INDENT}self.model = model",
        "def of_part(self, x, wanted):",
        f"{_INDENT}head = self.{head}",
        f'{_INDENT}return cross_entropy(type(head).forward(head, x){cast}, wanted, reduction="sum")',
        f"def forward(self, {_arguments(step)}):",
        *forward[1:],
    )
    yield from (_INDENT + each for each in methods)
    yield f"{_function(step)} = ModelWithLoss()"


def optimizer_line(step: CapturedStep, loop: Loop, parameters: str = "model.parameters()") -> str:
    """Return the line that makes the optimizer of a loop, with the options that decide memory."""
    name, options = OPTIMIZERS[loop.optimizer or step.optimizer]
    module = "bitsandbytes.optim" if name.endswith("8bit") else "torch.optim"
    # All else is the user's own.
    told = ("fused", "foreach", "momentum", "weight_decay")
    words = "".join(f", {key}={value}" for key, value in options.items() if key in told)
    return f"optimizer = {module}.{name}({parameters}{words})"


def scaler_line(step: CapturedStep, loop: Loop) -> Iterator[str]:
    """Yield the line that makes the gradient scaler of a loop, where the captured one had none."""
    if _is_scaled(step, Precision(loop.precision or step.precision.value)) and not _is_scaled(step, step.precision):
        yield _SCALER


def step_lines(result: ScenarioResult, way: Way) -> Iterator[str]:
    """Yield a step of a way: its micro-batches, forward and backward of each, and the update."""
    step, depth = step_of(result), ""
    precision = Precision(way.loop.precision or step.precision.value)
    is_scaled = _is_scaled(step, precision)
    names = _arguments(step).split(", ")
    if result.workload.rounds > 1:
        yield f"for _ in range({result.workload.rounds}):  # with the next batch each"
        depth += _INDENT
    if way.change is Change.MICRO_BATCHES:
        yield f"{depth}for start in range(0, {result.workload.part_size}, {way.batch_size}):"
        depth += _INDENT
    index = {
        Change.MICRO_BATCHES: f"[start : start + {way.batch_size}]",
        Change.BATCH: f"[:{way.batch_size}]",
        Change.SEQUENCE: f"[:, :{way.tokens}]",
    }.get(way.change, "")
    called = f"{_function(step)}({', '.join(_indexed(step, name, index) for name in names)})"
    if step.mode is Mode.INFERENCE:
        yield f"{depth}output = {called}"
        return
    loss = f"({called} / {way.rounds})" if way.rounds > 1 else called
    if way.loop.precision and not step.precision.autocast and (narrow := precision.autocast):
        yield f'{depth}with torch.autocast("cuda", torch.{narrow.value}):'
        yield f"{depth}{_INDENT}loss = {loss}"
        loss = "loss"
    yield f"{depth}scaler.scale({loss}).backward()" if is_scaled else f"{depth}{loss}.backward()"
    if _updates_at_end(step) and not way.loop.in_backward:
        yield from ("scaler.step(optimizer)", "scaler.update()") if is_scaled else ("optimizer.step()",)
        yield "optimizer.zero_grad()"


def _loss(step: CapturedStep) -> str:
    return step.program.loss or f"{_YOUR_LOSS}model(batch))"


def calls_script(step: CapturedStep, text: str) -> bool:
    """Return whether lines call what `script_begin` defines."""
    return f"{_function(step)}(" in text


def _function(step: CapturedStep) -> str:
    return "output_of" if step.mode is Mode.INFERENCE else "loss_of"


def _arguments(step: CapturedStep) -> str:
    return "batch, labels" if step.program.labels else "batch"


def _updates_at_end(step: CapturedStep) -> bool:
    return bool(step.update) and not step.in_backward


def _is_scaled(step: CapturedStep, precision: Precision) -> bool:
    return precision is Precision.AMP_FLOAT16 and step.mode is Mode.TRAINING


def _indexed(step: CapturedStep, name: str, index: str) -> str:
    """Return a part of the batch or of the labels; of a batch of several tensors the part of each."""
    if not index or name != "batch" or "*batch" not in step.program.loss:
        return name + index
    if "**batch" in step.program.loss:
        return f"{{name: each{index} for name, each in batch.items()}}"
    return f"[each{index} for each in batch]"
