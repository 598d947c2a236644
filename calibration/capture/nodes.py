"""Nodes of autograd's graph and the operations of forward that made them.

A node gets its sequence number before its operation is dispatched, so the newest node is that of the dispatched
operation, if it has one.
"""

from typing import cast

import torch


def newest_node() -> int:
    """Return the sequence number of the newest node."""
    return int(torch.autograd._get_sequence_nr()) - 1  # type: ignore[attr-defined] # noqa: SLF001 - no public one


def is_in_backward() -> bool:
    # Not by `running_node`: it is asked for each saved tensor.
    return torch._C._current_autograd_node() is not None  # noqa: SLF001 - as there


def is_accumulating(node: torch.autograd.graph.Node) -> bool:
    """Return whether a node adds to the gradient of a parameter."""
    return node.name().endswith("AccumulateGrad")


def running_node() -> torch.autograd.graph.Node | None:
    """Return the node that autograd runs, or whose gradients it passes on; None outside of backward."""
    # PyTorch's types leave out None.
    return cast("torch.autograd.graph.Node | None", torch._C._current_autograd_node())  # noqa: SLF001


class NodeTracker:
    """Maps nodes to operations of forward."""

    def __init__(self) -> None:
        self._newest = newest_node()
        self._operations: dict[int, int] = {}

    def note(self, operation: int | None) -> None:
        """Note nodes made for an operation of forward; None for a view."""
        newest = newest_node()
        if torch.is_grad_enabled():
            # An operation on integers makes no node. One in place may first copy what it saves, with a node for it.
            if operation is not None:
                for node in range(self._newest + 1, newest + 1):
                    self._operations.setdefault(node, operation)
            self._newest = newest
        elif newest > self._newest and operation is not None:
            # Forward of a custom function, after its node: the last operation counts.
            self._operations[newest] = operation

    def operation_of(self, node: int) -> int | None:
        return self._operations.get(node)

    def running_backward_of(self) -> int | None:
        """Return the last operation of the forward of the node whose backward runs."""
        node = running_node()
        return None if node is None else self._operations.get(node._sequence_nr())  # noqa: SLF001
