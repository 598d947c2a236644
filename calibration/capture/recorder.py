"""Records each operation that PyTorch dispatches, and what it does to memory.

It stands above whatever computes: fake tensors, the CPU or a GPU. Views and questions of shape are no operations. What
forward computes again in backward, for activation checkpointing, is of backward, and is the `forward` of the operations
of backward that follow from it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from calibration.capture.failures import failure_of
from calibration.capture.modules import ModuleTracker
from calibration.capture.schemas import is_random, only_writes, operands_of, tensors_in
from calibration.capture.storages import StorageTable, element_type_of
from calibration.capture.traffic import traffic_of
from calibration.capture.work import Effort, effort_of
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import Access, BufferKind


@dataclass
class Record:
    """An operation as it was dispatched; what its operands are to it is found out when all is known.

    Attributes:
        operands: numbers of storage and tensor, and how it is touched.
        results: storages that it made, each with its position among what the operator returns.
        node: the sequence number of the node of autograd whose backward it is part of, or that forward made for it.
        recomputes: whether it is of forward, run again in backward.
        accumulates: whether it adds to the gradient of a parameter, or makes it.
    """

    name: str
    module: int
    phase: Phase
    operands: list[tuple[int, int, Access]]
    results: dict[int, int]
    element_type: str
    effort: Effort
    bytes_moved: int
    random: bool
    forward: int | None = None
    recomputes: bool = False
    accumulates: bool = False
    saves: list[int] = field(default_factory=list)


class Recorder(TorchDispatchMode):
    """Within `recording` each operation becomes a record."""

    def __init__(self, modules: ModuleTracker, storages: StorageTable, host: frozenset[int]) -> None:
        """Record what runs of a model.

        Args:
            host: identities of storages in host memory, as an optimizer's counts of steps.
        """
        super().__init__()
        self.records: list[Record] = []
        self.phase = Phase.FORWARD
        self._modules = modules
        self._storages = storages
        self._host = host
        # By the sequence number of a node of autograd the last operation of its forward, and what it saves.
        self._forward_of: dict[int, int] = {}
        self._saves_of: dict[int, list[int]] = {}
        self._newest_node = -1

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what runs within."""
        self._newest_node = _newest_node()
        with ExitStack() as stack:
            stack.enter_context(self._modules.following())
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(self._note_saved, lambda saved: saved))
            stack.enter_context(self)
            yield

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operator returns
        """Run an operation and record it."""
        kwargs = kwargs or {}
        try:
            result = func(*args, **kwargs)
        except Exception as failure:
            raise failure_of(failure, str(func), self._modules.path) from failure
        if not func.is_view:
            self._record(func, args, kwargs, result)
        return result

    def enter(self, phase: Phase) -> None:
        """Take what follows for a phase."""
        self.phase = phase

    def finish(self) -> None:
        """Give each operation what autograd saved of it."""
        for node, saved in self._saves_of.items():
            if self.records:
                record = self.records[min(self._forward_of.get(node, ~node), len(self.records) - 1)]
                record.saves = list(dict.fromkeys((*record.saves, *saved)))

    def _record(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> None:
        position = len(self.records)
        operands: dict[tuple[int, int], Access] = {}
        name = func._schema.name.removeprefix("aten::")  # noqa: SLF001
        for tensor, is_written in operands_of(func, args, kwargs):
            if self._is_on_host(tensor):
                if is_written:
                    return
                continue
            number = self._storages.add(tensor, "constant", BufferKind.FEATURE_MAP, given=True)
            access = Access.READ
            if is_written:
                access = Access.WRITE if only_writes(func) else Access.UPDATE
            operands.setdefault((number, self._storages.view(tensor, number)), access)
        results: dict[int, int] = {}
        for index, tensor in enumerate(tensors_in(result)):
            if self._storages.number_of(tensor) is None and not self._is_on_host(tensor):
                label = f"{name} {self._modules.path}".strip()
                number = self._storages.add(tensor, label, BufferKind.FEATURE_MAP)
                results[number] = index
                operands[number, self._storages.view(tensor, number)] = Access.WRITE
        if not any(access.writes for access in operands.values()):
            return
        node = torch._C._current_autograd_node()  # noqa: SLF001 - PyTorch has no public one
        # Within backward gradients are off, but where forward is run again.
        recomputes = node is not None and torch.is_grad_enabled()
        forward = self._forward_of.get(node._sequence_nr()) if node is not None else None
        if node is None or recomputes:
            self._note_forward(position)
        module = self._modules.running
        if forward is not None and not recomputes:
            module = self.records[forward].module
        self.records.append(
            Record(
                name=str(func),
                module=module,
                phase=self.phase,
                operands=[(number, tensor, access) for (number, tensor), access in operands.items()],
                results=results,
                element_type=_arithmetic_type(args, kwargs, result),
                effort=effort_of(func, args, kwargs, result),
                bytes_moved=traffic_of(func, args, kwargs, result),
                random=is_random(func),
                forward=forward,
                recomputes=recomputes,
                accumulates=node is not None and node.name().endswith("AccumulateGrad"),
            )
        )
        self._storages.issued = len(self.records)

    def _note_forward(self, position: int) -> None:
        """Note the node of autograd that was made for an operation.

        Within the forward of a custom function, whose node comes first, gradients are off; an operation that made no
        node, as on numbers of rows, is of none.
        """
        newest = _newest_node()
        if newest > self._newest_node or not torch.is_grad_enabled():
            self._forward_of[newest] = position
        self._newest_node = newest

    def _note_saved(self, tensor: torch.Tensor) -> torch.Tensor:
        # The node is made before what it saves; without an operation of its own it saves after the last.
        if not self._is_on_host(tensor):
            number = self._storages.add(tensor, "constant", BufferKind.FEATURE_MAP, given=True)
            self._saves_of.setdefault(_newest_node(), []).append(number)
        return tensor

    def _is_on_host(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._host  # noqa: SLF001 - its identity


def _newest_node() -> int:
    """Return the sequence number of the node of autograd that was made last."""
    return torch.autograd._get_sequence_nr() - 1  # noqa: SLF001 - PyTorch has no public one


def _arithmetic_type(args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> str:
    """Return in which element type an operation computes: the widest floating type that it touches, else the first."""
    tensors = [*tensors_in((args, kwargs)), *tensors_in(result)]
    floating = [each for each in tensors if each.is_floating_point()]
    return element_type_of(max(floating, key=torch.Tensor.element_size) if floating else tensors[0])
