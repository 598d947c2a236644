"""What was captured as expressions of Python, for the lines that are printed to copy."""

from pathlib import Path
from typing import Any, Final

import msgspec
import torch
from torch import nn

from calibration.capture.losses import AssumedLoss
from calibration.capture.program import Arguments
from calibration.capture.request import LIBRARIES, Request, split_words
from calibration.capture.user_code import value_of
from vdnnsim.dnn.captured_step import ProgramText

_CROSS_ENTROPY: Final = "from torch.nn.functional import cross_entropy"
_NOTHING: Final = ProgramText()


def text_of_file(words: str) -> ProgramText:
    """Return how the model of `FILE.py:NAME` is made."""
    called = "" if isinstance(value_of(words), nn.Module) else "()"
    return ProgramText(_imports(words), split_words(words)[1] + called)


def text_of_request(request: Request, made: ProgramText, arguments: Arguments, loss: AssumedLoss) -> ProgramText:
    """Return the program of a request, of whose model is known how it is made."""
    kind = request.precision.element_type
    half = f"torch.{kind.value}" if kind.nbytes == 2 else ""
    model = made.model + (f".to({half})" if half else "")
    model += ".to(memory_format=torch.channels_last)" if request.channels_last else ""
    imports = made.imports
    if request.lora and any("transformers" in each for each in imports):
        imports += ("from peft import LoraConfig, get_peft_model",)
        model = f'get_peft_model({model}, LoraConfig(r={request.lora}, target_modules="all-linear"))'
    elif request.lora:
        model += f"  # yours with adapters of rank {request.lora}"
    # A library makes random ones.
    if "#" not in model and any(each.split()[1].partition(".")[0] in LIBRARIES for each in made.imports):
        model += "  # yours, with its weights"
    if request.inputs is None:
        args, kwargs = arguments
        texts = [f'"{name}": {_text_of(each, half)}' for name, each in kwargs.items()]
        batch = f"{{{', '.join(texts)}}}" if kwargs else _text_of(args[0], half)
    else:
        imports += _imports(request.inputs)
        sizes = (request.batch_size, *([request.tokens] if request.tokens else []))
        batch = f"{split_words(request.inputs)[1]}({', '.join(map(str, sizes))})"
    known = ProgramText(tuple(dict.fromkeys(imports)), model, request.checkpointing, batch, options=request.options)
    return text_of_call(arguments, loss, known)


def text_of_call(arguments: Arguments, loss: AssumedLoss, known: ProgramText = _NOTHING) -> ProgramText:
    """Return what is known of a program with its loss, which is `your_loss` where the user alone knows it."""
    args, kwargs = arguments
    given = ["batch"] if len(args) == 1 and not kwargs else ["*batch"] if args and not kwargs else ["**batch"]
    if args and kwargs:
        given = ["*batch[0]", "**batch[1]"]
    labels = f"torch.zeros({', '.join(map(str, loss.rows))}, dtype=torch.int64)" if loss.rows else ""
    return msgspec.structs.replace(
        known,
        imports=(*known.imports, *([_CROSS_ENTROPY] if labels else ())),
        labels=labels,
        loss=(loss.text or "your_loss({})").format(f"model({', '.join(given)})"),
    )


def _imports(words: str) -> tuple[str, ...]:
    """Return the lines that import the name of `FILE.py:NAME`, whose folder is searched for other modules as well."""
    path, name = split_words(words)
    folder = [] if path.parent == Path() else ["import sys", f"sys.path.insert(0, {str(path.parent)!r})"]
    return *folder, f"from {path.stem} import {name.partition('.')[0]}"


def _text_of(value: Any, half: str) -> str:  # noqa: ANN401 - whatever a model takes
    """Return an expression of a tensor of this shape; floating ones are of `half`, where there is one."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    sizes = ", ".join(map(str, value.shape))
    if value.is_floating_point():
        return f"torch.randn({sizes}{half and f', dtype={half}'})"
    return f"torch.zeros({sizes}, dtype={value.dtype})"
