"""Functions of a user's file that make the model and its inputs."""

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from calibration.capture.failures import failure_outside
from calibration.capture.program import Arguments
from calibration.capture.request import split_words
from calibration.capture.wrapped import as_module
from vdnnsim.errors import CaptureError
from vdnnsim.files.messages import file_name, not_one_of, one_line

_OF_IMAGES: Final = 4
"""Dimensions of a batch of images."""


def model_maker(words: str) -> Callable[[], nn.Module]:
    """Return a function that makes the model of `FILE.py:NAME`; the file is imported.

    Raises:
        CaptureError: the file cannot be imported, has no such name, or that makes no model.
    """
    value = value_of(words)
    if isinstance(value, nn.Module):
        return lambda: value
    _check_callable(words, value, arguments=0, right="a function without arguments that returns a torch.nn.Module")

    def make() -> nn.Module:
        model = as_module(value())
        if not isinstance(model, nn.Module):
            where, beside = _place(words, value), ""
            if isinstance(model, tuple) and any(isinstance(each, nn.Module) for each in model):
                beside = " alone; --inputs FILE.py:NAME names a function that makes its arguments"
            raise CaptureError(f"{where} returns {article(model)}, expected a torch.nn.Module{beside}")
        return model

    return make


def inputs_maker(words: str, *sizes: int) -> Callable[[], Arguments]:
    """Return a function that makes the arguments of a model from `FILE.py:NAME`, a function of batch size and tokens.

    Raises:
        CaptureError: the file cannot be imported, has no such name, or that is no function of so many sizes.
    """
    value = value_of(words)
    right = "a function of the batch size" + " and the tokens of a sequence" * (len(sizes) > 1)
    _check_callable(words, value, arguments=len(sizes), right=right)
    return lambda: arguments_of(value(*sizes), f"{_place(words, value)} returns")


def arguments_of(inputs: Any, found: str) -> Arguments:  # noqa: ANN401 - whatever a user gives
    """Return the arguments of a call: one tensor, a tuple of them by position, a mapping by name, or both as a pair.

    Args:
        inputs: what a user's function returns.
        found: what a message of another type begins with, as `inputs: found`.

    Raises:
        CaptureError: of any other type.
    """
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, tuple | list):
        if len(inputs) == 2 and isinstance(inputs[0], tuple | list) and isinstance(inputs[1], dict):
            return tuple(inputs[0]), inputs[1]
        return tuple(inputs), {}
    expected = "a tensor, a tuple of arguments, a dictionary of arguments by name, or a pair of both"
    if hasattr(inputs, "__array_interface__"):
        expected = "a torch.Tensor, which torch.from_numpy makes of it"
    raise CaptureError(f"{found} {article(inputs)}, expected {expected}")


def sample_of(arguments: Arguments) -> tuple[str, int]:
    """Return the word for a sample, and its tokens: a sequence where the first argument is N x T integers.

    An image has channels, height and width; of what else there may be nothing is known.
    """
    first = next((each for each in tree_leaves(arguments) if isinstance(each, torch.Tensor)), None)
    if first is not None and first.dim() == 2 and not first.is_floating_point():
        return "sequence", first.shape[1]
    return "image" if first is None or first.dim() == _OF_IMAGES else "sample", 1


def value_of(words: str) -> Any:  # noqa: ANN401 - whatever a file holds
    """Return the value of `FILE.py:NAME`, or raise CaptureError where the file has none of this name."""
    path, name = split_words(words)
    module = _imported(path)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            names = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
            own = [key for key in names if getattr(vars(module)[key], "__module__", "") == module.__name__]
            # Of names alike a function that makes a model goes before its class.
            own.sort(key=lambda key: isinstance(vars(module)[key], type))
            raise CaptureError(f"{file_name(path)}: {not_one_of(part, own or names, 'a name in this file')}")
        found = getattr(found, part)
    return found


def _imported(path: Path) -> ModuleType:
    """Import a file once, with its folder first in sys.path."""
    resolved = path.resolve()
    known = sys.modules.get(path.stem)
    if known is not None and getattr(known, "__file__", None) == str(resolved):
        return known
    if str(resolved.parent) not in sys.path:
        sys.path.insert(0, str(resolved.parent))
    # A file may have the name of a loaded module, as `types.py`.
    name = path.stem if known is None else f"captured_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, resolved)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as failure:
        where = f"{failure.filename or file_name(path)}:{failure.lineno}"
        raise CaptureError(f"{where}: {type(failure).__name__}: {one_line(failure.msg)}") from failure
    except SystemExit as failure:
        raise CaptureError(
            f"{file_name(path)}: the file ends Python when it is imported (exit status {failure.code}); put what is to "
            'run as a script under `if __name__ == "__main__":`'
        ) from failure
    except Exception as failure:
        raise failure_outside(failure, f"{file_name(path)}: importing it") from failure
    return module


def _check_callable(words: str, value: object, *, arguments: int, right: str) -> None:
    if not callable(value):
        raise CaptureError(f"{words} is {article(value)}, expected {right}")
    try:
        signature = inspect.signature(value)
    except ValueError:  # of some functions in C
        return
    try:
        signature.bind(*(None,) * arguments)
    except TypeError:
        where = _place(words, value)
        needed = ", ".join(
            name
            for name, each in signature.parameters.items()
            if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        )
        found = f"needs the arguments {needed}" if needed else "takes no argument"
        raise CaptureError(f"{where} {found}, expected {right}") from None


def _place(words: str, value: object) -> str:
    """Return file, line and name of a user's object."""
    path, name = split_words(words)
    try:
        line = inspect.getsourcelines(value)[1]  # type: ignore[arg-type]  # raises a TypeError
    except (OSError, TypeError):
        return words
    return f"{file_name(path)}:{line}: {name}"


def article(value: object) -> str:
    """Return a value's type with an article."""
    name = type(value).__name__
    return "nothing" if value is None else f"{'an' if name[:1] in 'aeiou' else 'a'} {name}"
