"""The order in which backward runs nodes that are ready, which must be the same in each run of a loop.

PyTorch numbers autograd's nodes by thread, and of those that are ready runs the one of the highest number. Nodes of a
gradient of a gradient are of the thread of backward and of that of the loop: which come first, and so in which order
three gradients are summed, hangs on how many each thread has made since the process began.
"""

from functools import cache
from typing import Final

import torch
from torch import Tensor

_OF_NEW_THREAD: Final = 2_000
"""More nodes than a loop makes in a thread of its own, which begins at 0."""
_OF_BACKWARD: Final = 50_000
"""More nodes than all loops of a process make in the thread of backward beyond those that they make in their own."""


@cache
def number_nodes_apart(device: str) -> None:
    """Have numbers of the calling thread be above those of the thread of backward, and these above a new thread's."""
    weight = torch.zeros((), device=device, requires_grad=True)
    if device != "cpu":
        weight.register_hook(lambda _: _make_nodes(_OF_NEW_THREAD))  # type: ignore[no-untyped-call]
        weight.backward()  # type: ignore[no-untyped-call]
    _make_nodes(_OF_BACKWARD)


def _make_nodes(count: int) -> None:
    with torch.enable_grad(), torch._C._DisableTorchDispatch():  # noqa: SLF001  # there is no public one
        weight: Tensor = torch.zeros((), requires_grad=True)
        for _ in range(count):
            weight.view_as(weight)
