"""Which operation of forward each node of autograd's graph is of.

A node is numbered when it is made (its sequence number), before the operation of forward runs: so the newest node is
that of the operation that is dispatched, if it has one.
"""

from typing import cast

import torch


def newest_node() -> int:
    """Return the sequence number of the node of autograd that was made last."""
    return int(torch.autograd._get_sequence_nr()) - 1  # type: ignore[attr-defined] # noqa: SLF001 - no public one


def is_in_backward() -> bool:
    """Return whether autograd runs a node."""
    return running_node() is not None


def is_accumulating() -> bool:
    """Return whether autograd adds to the gradient of a parameter."""
    node = running_node()
    return node is not None and node.name().endswith("AccumulateGrad")


def running_node() -> torch.autograd.graph.Node | None:
    """Return the node that autograd runs, or whose gradients it hands on; None outside of backward."""
    # PyTorch's types leave out None.
    return cast("torch.autograd.graph.Node | None", torch._C._current_autograd_node())  # noqa: SLF001


class NodeTracker:
    """Numbers of operations by nodes."""

    def __init__(self) -> None:
        self._newest = newest_node()
        self._operations: dict[int, int] = {}

    def note(self, operation: int | None) -> None:
        """Note the node that was made for an operation of forward; None for what is no operation, as a view."""
        newest = newest_node()
        if torch.is_grad_enabled():
            # One that makes no node, as on numbers of rows, comes after one that is known.
            # One in place may copy first what it saves, and the copy has a node of its own behind it.
            if operation is not None:
                for node in range(self._newest + 1, newest + 1):
                    self._operations.setdefault(node, operation)
            self._newest = newest
        elif newest > self._newest and operation is not None:
            # Within the forward of a custom function, whose node comes first, gradients are off: the last counts.
            self._operations[newest] = operation

    def operation_of(self, node: int) -> int | None:
        """Return the last operation of the forward of a node."""
        return self._operations.get(node)

    def running_backward_of(self) -> int | None:
        """Return the last operation of the forward of the node whose backward runs."""
        node = running_node()
        return None if node is None else self._operations.get(node._sequence_nr())  # noqa: SLF001
