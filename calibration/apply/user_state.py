"""Context managers that preserve tensors, random states and autocast of a user's program."""

import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch._ops import OpOverload

from calibration.capture.outside_tensors import existing
from calibration.capture.schemas import OperatorMode, operands_of
from vdnnsim.errors import CaptureError


@contextmanager
def protecting_user_tensors(device: torch.device) -> Iterator[None]:
    """Preserve existing tensors and random states in a capture with real tensors.

    Model and inputs are copies; a loss is the user's own and may write to its tensors.

    Raises:
        CaptureError: an operator would write to a tensor.
    """
    with ExitStack() as stack:
        if device.type == "cuda":
            stack.enter_context(torch.cuda.device(device))
        stack.enter_context(random_numbers_kept())
        stack.enter_context(_Refusing(existing(torch.Tensor)))
        yield


class _Refusing(OperatorMode):  # type: ignore[no-untyped-call]
    """Refuses writes to storages, which it holds, so that their identities stay unique."""

    def __init__(self, tensors: list[torch.Tensor]) -> None:
        super().__init__()
        self._storages = {each._cdata: each for each in map(_storage, tensors) if each is not None}  # noqa: SLF001

    def dispatch(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        if func._schema.is_mutable:  # noqa: SLF001 - PyTorch has no public one
            for tensor, is_written in operands_of(func, args, kwargs):
                if is_written and (storage := _storage(tensor)) is not None and storage._cdata in self._storages:  # noqa: SLF001
                    raise CaptureError(
                        f"{func}: writes to a tensor of shape {tuple(tensor.shape)} that is neither the model's nor "
                        "made by it, which a capture with real tensors would change"
                    )
        return func(*args, **kwargs)


def _storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    try:
        return tensor.untyped_storage()
    except (RuntimeError, NotImplementedError, ValueError):  # of sparse and lazy ones, and of classes that have none
        return None


@contextmanager
def random_numbers_kept() -> Iterator[None]:
    """Preserve the random states of Python, NumPy and PyTorch."""
    numpy = sys.modules.get("numpy")
    states = random.getstate(), None if numpy is None else numpy.random.get_state()
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(gpus):
        try:
            yield
        finally:
            random.setstate(states[0])
            if numpy is not None:
                numpy.random.set_state(states[1])


@contextmanager
def outside_of_autocast() -> Iterator[None]:
    """Suspend autocast and clear its cache of casts."""
    states = [(device, torch.is_autocast_enabled(device)) for device in ("cpu", "cuda")]
    depth = torch.autocast_increment_nesting()
    for _ in range(depth):
        torch.autocast_decrement_nesting()
    torch.clear_autocast_cache()
    for device, _ in states:
        torch.set_autocast_enabled(device, False)  # noqa: FBT003 - its only form
    try:
        yield
    finally:
        for device, was_enabled in states:
            torch.set_autocast_enabled(device, was_enabled)
        for _ in range(depth - 1):
            torch.autocast_increment_nesting()
