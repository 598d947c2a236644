"""How a way to make a model fit is done: a command, or the lines of Python of a changed loop."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import isqrt
from typing import Final

from vdnnsim.analysis.answer import Change, Way, limit_bytes
from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.kernel_work import ProductWork
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.training_loops import LISTS, Loop, checkpointed_classes, class_of_blocks
from vdnnsim.files.messages import listed
from vdnnsim.policies.checkpoint import equal_segments
from vdnnsim.policies.iterations.segments import Segment, is_sequence, modules, passing
from vdnnsim.policies.pytorch import pytorch_loop
from vdnnsim.report.tables.training_script import (
    checkpointed,
    definition,
    definition_as_module,
    imports_of,
    in_precision,
    optimizer_line,
    retyped,
    scaler_line,
    step_lines,
    step_of,
    without_cache,
)
from vdnnsim.units import GIB, MIB

_RUN_BY: Final = "# run by: "
_OR_BY: Final = "# or in place of the checkpoints alone, by: "
_SCRIPT: Final = "python train.py  # your script"
_OF_EACH_LOGIT: Final = frozenset({"tanh", "sigmoid", "clamp", "div", "mul", "add", "sub"})
"""Operators between output layer and cross entropy that a loss in slices repeats, beside casts."""
SEARCH: Final = "optimal"
"""Of `apply` by default."""


def how_to(result: ScenarioResult, way: Way) -> str:
    """Return a command, or lines of Python, which stand behind those of `script_begin` where they call `loss_of`."""
    checkpoints = way.policy.startswith("checkpoint") and not way.is_applied
    sections = list(_checkpointed(result)) if checkpoints else []
    applies_too = bool(sections) and way.change is Change.MICRO_BATCHES
    # Without a limit no memory is reserved ahead, so that segments grow.
    by_apply = way.is_applied or (not way.expandable and (applies_too or (checkpoints and not sections)))
    sliced = list(_sliced_loss(result, way.loop, by_apply=by_apply))
    defines = all(each.startswith("#") for each in sliced)
    lines = [*_updates(result, way.loop), *retyped(step_of(result), way.loop, defines=defines), *sliced]
    if way.loop.checkpointing:
        lines += checkpointed(step_of(result), checkpointed_classes(step_of(result)))
    lines += [*sections, *scaler_line(step_of(result), way.loop)]
    if lines or way.change in (Change.MICRO_BATCHES, Change.BATCH, Change.SEQUENCE) or way.loop.precision:
        marks = (["# before the loop:"], ["# each step:"]) if lines else ([], [])
        lines = [*marks[0], *lines, *marks[1], *step_lines(result, way)]
    text = "\n".join(lines)
    lines = [*imports_of(text), *lines]
    policy = "" if way.policy == SEARCH else f" --policy '{way.policy}'"
    command = "" if lines else _SCRIPT
    if by_apply:
        nbytes = limit_bytes(result.server.gpu)
        memory = f"{nbytes / GIB:.1f}GiB" if nbytes >= GIB else f"{nbytes // MIB}MiB"
        command = f"vdnnsim apply --memory {memory}{policy} --hardware {way.hardware} -- {_SCRIPT}"
    elif way.expandable:
        is_plain = bool(sections) or way.policy.startswith("pytorch")
        applied = "" if is_plain else f"vdnnsim apply{policy} --hardware {way.hardware} -- "
        command = f"PYTORCH_ALLOC_CONF=expandable_segments:True {applied}{_SCRIPT}"
    if lines and command:
        command = (_OR_BY if applies_too and by_apply else _RUN_BY) + command
    return "\n".join((*lines, command) if command else lines)


def _updates(result: ScenarioResult, loop: Loop) -> Iterator[str]:
    """Yield the lines of another optimizer, or of updates in groups or in backward."""
    if not (loop.optimizer or loop.in_backward or loop.param_groups):
        return
    step = step_of(result)
    if loop.in_backward:
        made = optimizer_line(step, loop, "[each]").partition(" = ")[2]
        yield f"optimizers = {{each: {made} for each in model.parameters()}}"
        yield "def update(parameter):"
        yield "    optimizers[parameter].step()"
        yield "    optimizers[parameter].zero_grad()"
        yield "for each in model.parameters():"
        yield "    each.register_post_accumulate_grad_hook(update)  # in place of optimizer.step() in the loop"
    elif loop.param_groups:
        yield "parameters, n = list(model.parameters()), " + str(loop.param_groups)
        yield 'groups = [{"params": parameters[start::n]} for start in range(n)]'
        yield optimizer_line(step, loop, "groups")
    else:
        yield optimizer_line(step, loop)


def _sliced_loss(result: ScenarioResult, loop: Loop, *, by_apply: bool) -> Iterator[str]:
    """Yield the lines of a loss of one slice of the tokens after the other; for an own forward as a comment.

    `vdnnsim apply` plans what a model returns, and a capture runs a copy of it: there the loss is that of a module,
    which reaches the output layer as a part of itself.
    """
    if not loop.loss_chunks:
        return
    step, chunks = in_precision(step_of(result), loop), loop.loss_chunks
    text, (head, cast, own) = step.program, _output_layer(step)
    called, _, is_logits = text.loss.removeprefix("cross_entropy(").partition(".flatten(0, -2)")
    shifts = _is_causal(step) and '"labels": ' in text.batch
    total = "sum(checkpoint(of_part, *part, use_reentrant=False) for part in parts)"
    if not head or not (is_logits or shifts):
        yield "# in your forward, of `hidden`, the input of the output layer `head`, and of labels:"
        yield f"# of_part = lambda x, wanted: cross_entropy(head(x){cast}, wanted, reduction='sum')" + own
        yield f"# parts = zip(hidden.flatten(0, -2).chunk({chunks}), labels.flatten().chunk({chunks}))"
        yield f"# loss = {total} / labels.numel()"
        return
    without_head = f"{head}.forward = lambda hidden: hidden  # so that the model returns what its output layer gets"
    body, count = [f"hidden, wanted = {called}.flatten(0, -2), labels.flatten()"], "wanted.numel()"
    if shifts:
        count = "(wanted != -100).sum()"
        body = [
            'inputs = {name: each for name, each in batch.items() if name != "labels"}',
            "hidden = model(**inputs).logits.flatten(0, -2)",
            'wanted = pad(batch["labels"], (0, 1), value=-100)[..., 1:].flatten()  # the next tokens',
        ]
    body += [f"parts = zip(hidden.chunk({chunks}), wanted.chunk({chunks}))", f"return {total} / {count}"]
    if by_apply:
        yield from (without_head, *definition_as_module(step, head, cast, body))
        return
    yield from (f"head = {head}.forward", without_head, "def of_part(x, wanted):")
    yield f'    return cross_entropy(head(x){cast}, wanted, reduction="sum")'
    yield from definition(step, body)


def _is_causal(step: CapturedStep) -> bool:
    """Return whether a model of transformers predicts the next tokens."""
    kind = step.modules[0].kind
    return kind.startswith("transformers.") and kind.endswith(("ForCausalLM", "LMHeadModel"))


def _output_layer(step: CapturedStep) -> tuple[str, str, str]:
    """Return the layer whose product a cross entropy gets, the cast between, in Python, and words for what else is.

    The layer is empty where no module computes it, or where a model without it would do that to the layer's input; the
    cast where there is none or autocast makes it.
    """
    of_forward = [each for each in step.operations if each.phase is Phase.FORWARD]
    end = next((at for at, each in enumerate(of_forward) if "_log_softmax" in each.name), 0)
    at = next((at for at in reversed(range(end)) if isinstance(of_forward[at].work, ProductWork)), None)
    if at is None:
        return "", "", ""
    product, between = of_forward[at], [each.name.split(".")[1].rstrip("_") for each in of_forward[at:end]]
    own = [each for each in dict.fromkeys(between) if each in _OF_EACH_LOGIT]
    module = step.modules[product.module]
    is_widened = of_forward[end].element_type == "float32" != product.element_type and not step.precision.autocast
    is_layer = module.kind.endswith(("Linear", "Conv1D")) and module.path and not own
    words = f"  # and {listed(own)} of your forward between" if own else ""
    return _in_python(module.path) if is_layer else "", ".float()" if is_widened else "", words


def _checkpointed(result: ScenarioResult) -> Iterator[str]:
    """Yield the lines that recompute as the policy does; for other models than sequences of blocks a comment.

    None where more than one activation passes from a section to later ones, as skip connections do: a function of one
    argument does not compute it.
    """
    workload = pytorch_loop(result.workload, set_to_none=True)
    parts = modules(workload)
    segments = equal_segments(parts, isqrt(len(parts)))
    if isinstance(workload, CapturedWorkload) and is_sequence(workload) and (sequence := _sequence(workload.captured)):
        blocks, paths = sequence
        yield from without_cache(step_of(result))
        yield f"blocks = {blocks}"
        yield "def section(forwards, x, *more, **named):  # of blocks that return what the next one gets first"
        yield "    for forward in forwards:"
        yield "        x = forward(x, *more, **named)"
        yield "    return x"
        yield f"for start, end in pairwise({_bounds(workload, segments[:-1], paths)}):"
        yield "    first, *others = blocks[start:end]"
        yield "    forwards = [each.forward for each in (first, *others)]"
        yield "    first.forward = partial(checkpoint, section, forwards, use_reentrant=False)"
        yield "    for each in others:"
        yield "        each.forward = lambda x, *more, **named: x  # it runs in its section"
        return
    layers = workload.graph.layers
    if any(passing(workload, each.layers.stop) > 1 for each in segments[:-1]):
        return
    where = listed([f"{layers[each.layers[0]].name} to {layers[each.layers[-1]].name}" for each in segments[:-1]])
    yield f"# in forward, where a function `section` runs {where}, of each:"
    yield "# x = checkpoint(section, x, use_reentrant=False)"


def _sequence(step: CapturedStep) -> tuple[str, list[str]] | None:
    """Return modules that run one after the other, in Python, and their paths: blocks of a class, or of a `Sequential`.

    None where others may run between blocks of a list.
    """
    kinds, name = {each.path: each.kind for each in step.modules}, class_of_blocks(step)
    holder = next((path.rpartition(".")[0] for path, kind in kinds.items() if kind == name), "")
    children = {path: kind for path, kind in kinds.items() if path and path.rpartition(".")[0] == holder}
    if kinds.get(holder) == LISTS[0]:
        return f"list({_in_python(holder)})", list(children)
    if not name or len(set(children.values())) > 1:
        return None
    _, _, short = name.rpartition(".")
    blocks = [path for path, kind in kinds.items() if kind == name]
    return f'[each for each in model.modules() if type(each).__name__ == "{short}"]', blocks


def _bounds(workload: CapturedWorkload, segments: Sequence[Segment], blocks: Sequence[str]) -> list[int]:
    """Return where sections of blocks begin and the last ends: with the segment in which their last block ends."""
    ends = dict.fromkeys(blocks, 0)
    for each in workload.step.operations:
        path = f"{workload.step.modules[each.module].path}."
        if each.phase is Phase.FORWARD and (block := next((of for of in blocks if path.startswith(f"{of}.")), None)):
            ends[block] = max(ends[block], each.layer)
    # A block without operations, as an identity, ends with the one before.
    done = list(accumulate(ends.values(), max))
    return sorted({0, *(bisect_left(done, each.layers.stop) for each in segments)})


def _in_python(path: str) -> str:
    """Return a module of the model by its path, `model.layers[0]`."""
    parts = path.split(".") if path else ()
    return "".join(("model", *(f"[{each}]" if each.isdigit() else f".{each}" for each in parts)))
