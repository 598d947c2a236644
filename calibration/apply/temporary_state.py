"""What holds in the process of a script for a while, and is as it was afterwards."""

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from calibration.apply.saved_storage import Layout


@contextmanager
def saving_on_host(note: Callable[[torch.UntypedStorage], object]) -> Iterator[None]:
    """Keep what autograd saves on the host, in its layout, until backward takes it; `note` is told of its memory."""

    def pack(tensor: torch.Tensor) -> Any:  # noqa: ANN401
        if tensor.is_leaf or tensor.device.type == "cpu":
            return tensor
        storage = tensor.untyped_storage()
        note(storage)
        return Layout.of(tensor), storage.cpu(), storage.device  # type: ignore[no-untyped-call]

    def unpack(packed: Any) -> torch.Tensor:  # noqa: ANN401
        if isinstance(packed, torch.Tensor):
            return packed
        layout, storage, device = packed
        assert isinstance(layout, Layout), "as it was packed"
        back = torch.empty(storage.nbytes(), dtype=torch.uint8, device=device)
        back.copy_(torch.empty(0, dtype=torch.uint8).set_(storage))
        return layout.on(back.untyped_storage())

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield


@contextmanager
def random_numbers_kept() -> Iterator[None]:
    """Leave generators of random numbers as they were: a script draws from them next."""
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
    """Leave what a script runs under mixed precision for a while: casts of weights are remembered to its end."""
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
