"""Messages of failed captures, in one line: the user's line, the module, the reason."""

import inspect
import math
import re
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

import torch
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)

from calibration.capture.record import Record
from vdnnsim.dnn.layout import Layout
from vdnnsim.dnn.step import Module
from vdnnsim.errors import CaptureError

_OURS = Path(__file__).parents[1], Path(inspect.getfile(CaptureError)).parent
_PYTORCH = Path(torch.__file__).parent
_PYTHON = Path(inspect.__file__).parent


def failure_of(failure: BaseException, operator: str, module: str, *, of_rank: bool) -> CaptureError:
    """Return the error of an operator, as `aten.nonzero.default`, that failed in the module of a path."""
    where = f"{_line(traceback.extract_stack())}, in {f'module {module}' if module else 'the model'}: {operator}"
    is_nested = "nested" in f"{operator} {failure}".lower()
    right = _EQUAL if of_rank else _PADDED if is_nested else _REAL
    if isinstance(failure, DataDependentOutputException):
        return CaptureError(f"{where} looks into computed values, which fake tensors do not have; {right}")
    if isinstance(failure, DynamicOutputShapeException):
        return CaptureError(f"{where} returns as many values as the data has; {right}")
    if isinstance(failure, UnsupportedOperatorException | NotImplementedError):
        return CaptureError(f"{where} does not say what shapes it returns (`torch.library.register_fake`); {right}")
    is_lookup = operator.startswith("aten.embedding.") and "indices" in str(failure)
    return CaptureError(f"{where}: {_first_line(failure)}{f'; {_INDICES}' if is_lookup else ''}")


def keep_user_frames(failure: BaseException) -> None:
    """Reduce the tracebacks of a failure, and of what led to it, to frames of the user's code."""
    seen, rest = set[int](), [failure]
    while rest:
        each = rest.pop()
        if id(each) not in seen:
            seen.add(id(each))
            frames, users = each.__traceback__, list[TracebackType]()
            while frames is not None:
                if _is_of_user(frames.tb_frame.f_code.co_filename):
                    users.append(frames)
                frames = frames.tb_next
            shown = None
            for frame in reversed(users):
                shown = TracebackType(shown, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
            each.__traceback__ = shown
            rest += filter(None, (each.__cause__, each.__context__))


def failure_outside(failure: BaseException, name: str) -> CaptureError:
    """Return the error of a user's Python code that failed outside of operators."""
    while failure.__cause__ is not None and (isinstance(failure, ImportError) or _first_line(failure).endswith(":")):
        # As "Could not import module", and "Failed to run stage backward:" before the tensors of the stage.
        failure = failure.__cause__
    text = _first_line(failure)
    is_of_fakes = any(word in text for word in ("FakeTensor", "fake tensor", "tensor subclass", "numpy"))
    line = _line(traceback.extract_tb(failure.__traceback__))
    if "got mixed torch.Tensor and DTensor" in text:
        return CaptureError(f"{name}: {line}: {text}; {_PARAMETERS if _OF_UPDATE.search(text) else _OPERANDS}")
    if any(word in text for word in ("DTensor", "rendezvous", "process group")):
        return CaptureError(f"{name}: {line}: {text}; expected a model that is made without sharding it, or {RANKS}")
    right = next((right for word, right in _RIGHT.items() if word in text), "")
    if not right and isinstance(failure, AttributeError) and isinstance(failure.obj, nn.Module):
        right = _RETURNED
    if not right and is_of_fakes:
        right = _REAL
    return CaptureError(f"{name}: {line}: {text}{right and f'; {right}'}")


def refuse_float8(records: Sequence[Record], modules: Sequence[Module]) -> None:
    """Refuse products of narrower types than the cost model has rates of.

    Raises:
        CaptureError: there is one.
    """
    for each in records:
        if each.name.startswith(("aten._scaled_mm", "aten._scaled_grouped_mm")):
            raise CaptureError(
                f"{modules[each.module].path or 'the model'}: {each.name}: products in float8 are not timed; expected "
                "the model before torchao's convert_to_float8_training, in amp_bf16"
            )


def about_split(failure: BaseException, layout: Layout | None) -> str:
    """Return what may be right where sizes fail on the heads or tokens that one rank has; empty for another failure.

    A shape of n, t, heads, d, whose heads may be -1, says how many there are before they are split.
    """
    found = _VIEW.search(str(failure))
    if layout is None or layout.tensor == 1:
        return ""
    if found is None:
        of_tokens = layout.shares_tokens and _SIZES.search(str(failure))
        return f"; under {layout.text} {_TOKENS}" if of_tokens else ""
    ranks, sizes = layout.tensor, [int(each) for each in found[1].split(",")]
    others = math.prod(each for at, each in enumerate(sizes) if at != len(sizes) - 2)
    heads, left = divmod(int(found[2]) * ranks, others) if others > 0 else (0, 1)
    if len(sizes) > 2 and not left and heads % ranks:
        return f"; {heads} heads cannot be split over {ranks} ranks, expected {largest_split(heads, ranks)}"
    return f"; under tp={ranks} a rank has some of the heads, expected -1 for them, as in x.view(n, t, -1, d)"


def largest_split(heads: int, ranks: int) -> str:
    """Return in words the largest `tp` below so many ranks that divides a number of heads."""
    tensor = max(each for each in range(1, ranks) if heads % each == 0)
    return f"tp={tensor} at most" if tensor > 1 else "no tp"


_VIEW: Final = re.compile(r"shape '\[([-\d, ]+)\]' is invalid for input of size (\d+)")
_SIZES: Final = re.compile(r"\bdim|shape|size")
_TOKENS: Final = (
    "a block's input has some of the tokens, what its split layers return all of them; expected sizes of the latter, "
    "as of q in q = q_proj(x), or sp=never"
)
RANKS: Final = "a function that makes it, with --parallel ranks=N, in Python parallel='ranks=N', for N GPUs"
"""What is right for a model that its own code wraps."""
_MESH: Final = "expected --parallel ranks=N for all N ranks of the mesh"
_OF_UPDATE: Final = re.compile(r"\b_(foreach|fused)_")
_PARAMETERS: Final = (
    "an optimizer updates several parameters at once if all are of one kind; expected --optimizer adamw_for_loop, in "
    "training foreach=False, or all parameters split or sharded, as by fully_shard of the model"
)
_OPERANDS: Final = (
    "expected both as DTensors: inputs by PrepareModuleInput, parameters by parallelize_module or fully_shard of what "
    "holds them"
)
_EQUAL: Final = (
    "expected shapes that follow from those of the inputs, of experts equal shares, as with a capacity for each, for "
    "a rank has no values"
)
_INDICES: Final = "expected inputs of integers, as torch.zeros(8, 512, dtype=torch.long)"
_ON_INPUTS: Final = "expected tensors on the device of the inputs, as device=x.device, in place of .cuda()"
_PADDED: Final = "expected padded tensors, with a mask, in place of nested ones"
_RETURNED: Final = "a capture runs a copy of the model; of a loss, expected one of what forward returns"
_REAL: Final = "`--real`, in Python `real=True`, runs the model with real tensors"

_RIGHT: Final = {
    "not compiled with CUDA": _ON_INPUTS,
    "No CUDA GPUs": _ON_INPUTS,
    "no NVIDIA driver": _ON_INPUTS,
    "only for scalar outputs": (
        "expected a scalar as loss, and of a PipelineStage input_args and output_args that require gradients"
    ),
    "SparseTensorImpl": (
        "expected dense tensors: a graph as indices for index_add, and sparse=False of Embedding and EmbeddingBag"
    ),
    "strided nested tensor": _PADDED,
    "NestedIntNode": _PADDED,
    "support saved tensor hooks": "expected torch.autograd.grad in place of transforms of torch.func",
    "bigger than default world size": _MESH,
}
"""What would be right, by a part of PyTorch's message."""


def _line(stack: traceback.StackSummary) -> str:
    """Return file and line of the innermost frame of the user's code."""
    for frame in reversed(stack):
        if _is_of_user(frame.filename):
            return f"{frame.filename}:{frame.lineno}"
    return "in PyTorch"


def _is_of_user(file: str) -> bool:
    # <string> is `python -c`, by which a process of ours begins.
    path = Path(file)
    is_of_python = path.is_relative_to(_PYTHON) and "site-packages" not in path.parts
    return file != "<string>" and not is_of_python and not any(map(path.is_relative_to, (*_OURS, _PYTORCH)))


def _first_line(failure: BaseException) -> str:
    return f"{type(failure).__name__}: {str(failure).strip().partition(chr(10))[0]}"
