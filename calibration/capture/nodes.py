"""Nodes of autograd's graph and the operations of forward that made them.

A node gets its sequence number before its operation is dispatched, so the newest node is that of the dispatched
operation, if it has one.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
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


def leaves_of(result: torch.Tensor) -> set[int]:
    """Return the identities of the tensors whose gradients backward of a result accumulates."""
    found: set[int] = set()
    nodes = [result.grad_fn]
    seen = set(nodes)
    while nodes:
        node = nodes.pop()
        if node is None:
            continue
        if is_accumulating(node):
            found.add(id(node.variable))  # type: ignore[attr-defined]  # of these nodes alone
        new = {each for each, _ in node.next_functions} - seen
        seen |= new
        nodes += new
    return found


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


class ForwardPasses:
    """The operations of each forward by module and name, and how many of them backward has recomputed.

    Micro-batches of a pipeline run forward before the first of them runs backward.
    """

    def __init__(self) -> None:
        self._begins = [0]
        self._operations = [defaultdict[tuple[int, str], list[int]](list)]
        self._recomputed = [Counter[tuple[int, str]]()]

    def begin(self, operation: int) -> None:
        """Begin the forward whose first operation has this number."""
        self._begins.append(operation)
        self._operations.append(defaultdict(list))
        self._recomputed.append(Counter())

    def note(self, module: int, name: str, operation: int) -> None:
        """Note an operation of the last forward."""
        self._operations[-1][module, name].append(operation)

    def repeated(self, module: int, name: str, forward: int | None) -> int | None:
        """Return the operation that one in backward repeats, in the forward of the running node's operation."""
        at = -1 if forward is None else bisect_right(self._begins, forward) - 1
        twins = self._operations[at].get((module, name))
        if not twins:
            return forward
        self._recomputed[at][module, name] += 1
        return twins[(self._recomputed[at][module, name] - 1) % len(twins)]
