"""Records each operation that PyTorch dispatches and its effect on memory.

It works on fake tensors, the CPU or a GPU. Views are no operations. Recomputation by activation checkpointing is of
backward; `forward` of a recomputed operation, and of its backward, is the operation that it repeats.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch
from torch._ops import OpOverload

from calibration.capture.demand import Demand, Demands
from calibration.capture.failures import failure_of
from calibration.capture.in_place import overwrites, write_in_place
from calibration.capture.nodes import (
    ForwardPasses,
    NodeTracker,
    is_accumulating,
    is_in_backward,
    newest_node,
    running_node,
)
from calibration.capture.operator_work import Effort, arithmetic_type, traffic_of, widest_type
from calibration.capture.parallel.collectives import exchange_of, runs_aside
from calibration.capture.record import Call, Record
from calibration.capture.running_module import ModuleTracker
from calibration.capture.schemas import (
    RECORD_STREAM,
    OperatorMode,
    is_random,
    name_of,
    tensors_in,
    uses_of,
)
from calibration.capture.storages import StorageTable, element_type_of
from calibration.capture.tape import TapeRecorder
from vdnnsim.dnn.collective import Collective, CollectiveKind
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.operator import Arithmetic
from vdnnsim.dnn.step import Access, BufferKind
from vdnnsim.errors import CaptureError


class Recorder(OperatorMode):  # type: ignore[no-untyped-call]
    """Makes a record of each operation within `recording`."""

    def __init__(
        self,
        modules: ModuleTracker,
        storages: StorageTable,
        host: frozenset[int] = frozenset(),
        *,
        tape: TapeRecorder | None = None,
        only_failures: bool = False,
    ) -> None:
        """Record a model with its storages, or its failures alone; with a tape also saves, unpacks and calls."""
        super().__init__()
        self.records: list[Record] = []
        self._tape = tape or TapeRecorder(is_on=False)
        self.failure: tuple[BaseException, CaptureError] | None = None
        """The last exception of an operation, which the model may have caught, and its error message."""
        self._is_aside = self._updates_on_host = False
        self._only_failures = only_failures
        self._phase = Phase.FORWARD
        self._modules = modules
        self.storages = storages
        self._host = host
        self._nodes = NodeTracker()
        # Of each save its node, its storage, and the number of operations before it.
        self._saved: list[tuple[int, int, int]] = []
        self._passes = ForwardPasses()
        self._demands = Demands()

    @contextmanager
    def recording(self) -> Iterator[None]:
        with ExitStack() as stack:
            if not self.is_compiled:
                # Dynamo would trace its hooks.
                stack.enter_context(self._modules.following())
            if self.opened:
                from calibration.capture.parallel.world import following

                stack.enter_context(following(self))
            if not self._only_failures:
                stack.enter_context(torch.autograd.graph.saved_tensors_hooks(self._note_saved, self._note_taken))
            stack.enter_context(self)
            yield

    def dispatch(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        if self._is_aside:
            return self.in_mode_below(func, args, kwargs)
        if func is RECORD_STREAM:
            self._tape.lend(map(self.storages.number_of, tensors_in(args)))
            return None
        # Within DTensor autograd has not decomposed composites, as `to`, which may copy.
        if self.opened and (found := self.decomposed(func, args, kwargs)) is not NotImplemented:
            return found
        try:
            result = self.in_mode_below(func, args, kwargs)
        except Exception as failure:
            self.failure = failure, failure_of(failure, str(func), self._modules.path, of_rank=bool(self.opened))
            raise
        if self._only_failures:
            return result
        if self._phase is Phase.UPDATE and self._updates_on_host:
            if any(access.writes for _, access in uses_of(func, args, kwargs)) or tensors_in(result):
                work = Collective(CollectiveKind.ON_HOST, traffic_of(func, args, kwargs, result), "float32", 1)
                self.launch(str(func), (), 0, 0, work)
        elif func is _FROM_DATA:
            # An optimizer's numbers stay on the host.
            if not (self._host and self._phase is Phase.UPDATE):
                self._record(func, (), {}, result)
        elif func.is_view or torch.Tag.inplace_view in func.tags:
            # Autograd detaches saved tensors after it has made the node, before its operation.
            if func is not _DETACH:
                self._nodes.note(None)
        else:
            self._record(func, args, kwargs, result)
        return result

    def launch(
        self,
        name: str,
        tensors: Sequence[tuple[torch.Tensor, Access]],
        flop: int,
        bytes_moved: int,
        collective: Collective | None = None,
    ) -> None:
        """Record a kernel of a compiler, or an exchange with the host, which PyTorch does not dispatch."""
        if self._only_failures:
            return
        operands: dict[tuple[int, int], Access] = {}
        for tensor, access in tensors:
            number = self.storages.add_constant(tensor)
            place = number, self.storages.view(tensor, number)
            # What is read and written has two arguments.
            operands[place] = access if operands.get(place, access) is access else Access.UPDATE
        (module, forward, _), given = self._place(name), tuple(each for each, _ in tensors)
        element_type = collective.element_type if collective else widest_type(given)
        self.records.append(
            Record(
                name=name,
                module=module,
                phase=self._phase,
                operands=[(number, tensor, access) for (number, tensor), access in operands.items()],
                results={},
                demand=Demand(element_type, Effort({Arithmetic.ELEMENTWISE: flop} if flop else {}), bytes_moved),
                random=False,
                call=Call.of(_FROM_DATA, given, {}, (), self.storages.number_of) if self._tape.is_on else None,
                forward=forward,
                collective=collective,
                aside=collective is not None,
            )
        )
        self.storages.issued = len(self.records)

    def exchanged(self, kind: CollectiveKind, on_gpu: torch.Tensor, on_host: torch.Tensor) -> None:
        """Record a copy of a shard from the host, or of its gradient to it."""
        access, nbytes = Access.WRITE, on_gpu.numel() * on_gpu.element_size()
        if kind is CollectiveKind.TO_HOST:
            access, self._updates_on_host = Access.READ, True
            self.storages.add(on_host, "gradient", BufferKind.WEIGHT_GRADIENT, given=True, on_host=True)
        copy = Collective(kind, nbytes, element_type_of(on_gpu), 1)
        self.launch(f"fsdp.{kind.value}", [(on_gpu, access)], 0, 0, copy)

    def allocated(self, tensor: torch.Tensor) -> None:
        """Note weights that FSDP allocates again, without an operator, to gather them."""
        self.storages.add(tensor, f"weights {self._modules.path}".strip(), BufferKind.WEIGHTS)

    def freed(self, tensor: torch.Tensor) -> None:
        """Note weights that FSDP frees, without an operator, while it keeps their tensor."""
        self.storages.free(tensor)

    def enter(self, phase: Phase) -> None:
        self._phase = phase
        if phase is Phase.FORWARD:
            self._passes.begin(len(self.records))

    def finish(self) -> dict[int, int]:
        """Assign saved storages to operations, and make those in place that are so without modes.

        Returns new numbers of storages by old ones.
        """
        for node, storage, issued in self._saved:
            position, made = self._nodes.operation_of(node), self.storages.lives[storage].written_by
            # The last, of a node without one, as of a function that returns its input, or that saves a later result.
            if position is None or (made is not None and made > position):
                position = max(issued - 1, 0)
            if storage not in (saves := self.records[position].saves):
                saves.append(storage)
        return write_in_place(self.records, self.storages)

    def _record(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> None:
        operands: dict[tuple[int, int], Access] = {}
        exchange = exchange_of(func, args, kwargs, result) if self.opened else None
        for tensor, access in exchange.used if exchange else uses_of(func, args, kwargs):
            if self._is_on_host(tensor):
                if access.writes:
                    return
                continue
            if exchange and access is Access.WRITE and self.storages.number_of(tensor) is None:
                continue
            number = self.storages.add_constant(tensor)
            operands.setdefault((number, self.storages.view(tensor, number)), access)
            self._see(tensor, number, is_written=access.writes)
        results: dict[int, int] = {}
        for index, tensor in enumerate(tensors_in(result)):
            if self.storages.number_of(tensor) is None and not self._is_on_host(tensor):
                label = f"{name_of(func)} {self._modules.path}".strip()
                number = self.storages.add(tensor, label, BufferKind.FEATURE_MAP)
                results[number] = index
                operands[number, self.storages.view(tensor, number)] = Access.WRITE
        if not (exchange and exchange.collective) and not any(access.writes for access in operands.values()):
            return
        made_by = self.storages.lives[next(iter(operands))[0]].written_by
        made_in = None if made_by in (None, len(self.records)) else self.records[made_by].node
        # Updates within backward are of no node.
        node = None if self._phase is Phase.UPDATE else running_node()
        module, forward, recomputes = self._place(str(func))
        if exchange:
            demand = Demand(arithmetic_type(func, args, kwargs, result), bytes_moved=exchange.bytes_moved)
        else:
            demand = self._demands.of(func, args, kwargs, result)
        self.records.append(
            Record(
                name=str(func),
                module=module,
                phase=self._phase,
                operands=[(number, tensor, access) for (number, tensor), access in operands.items()],
                results=results,
                demand=demand,
                random=is_random(func),
                call=Call.of(func, args, kwargs, result, self.storages.number_of) if self._tape.is_on else None,
                forward=forward,
                recomputes=recomputes,
                accumulates=node is not None and is_accumulating(node),
                node=None if node is None else node._sequence_nr(),  # noqa: SLF001
                overwrites=len(results) == 1 and overwrites(func, args, result, made_in),
                collective=exchange.collective if exchange else None,
                aside=bool(self.opened) and (runs_aside() or (exchange is not None and exchange.asynchronous)),
            )
        )
        self.storages.issued = len(self.records)
        self._tape.touch(number for number, _ in operands)

    def _place(self, name: str) -> tuple[int, int | None, bool]:
        """Return the module of an operation, its operation of forward, and whether it recomputes that."""
        position, module = len(self.records), self._modules.running
        if self._phase is not Phase.BACKWARD:
            if self._phase is Phase.FORWARD:
                self._nodes.note(position)
                self._passes.note(module, name, position)
            return module, None, False
        forward = self._nodes.running_backward_of()
        # In backward modules run, and gradients are enabled, only where forward is recomputed.
        recomputes = is_in_backward() and (torch.is_grad_enabled() or self._modules.is_running)
        if recomputes:
            forward = self._passes.repeated(module, name, forward)
            self._nodes.note(forward)
        elif forward is not None:
            module = self.records[forward].module
        return module, forward, recomputes

    def _note_saved(self, tensor: torch.Tensor) -> tuple[int | None, torch.Tensor]:
        if is_in_backward() or self._is_on_host(tensor):
            return None, tensor.detach()
        number = self.storages.add_constant(tensor)
        self._see(tensor, number)
        # A loss is scaled between forward and backward.
        if self._phase is Phase.FORWARD:
            self._saved.append((newest_node(), number, len(self.records)))
        self._is_aside = True
        try:
            return self._tape.save(tensor, number, self.records)
        finally:
            self._is_aside = False

    def _note_taken(self, saved: tuple[int | None, torch.Tensor]) -> torch.Tensor:
        save, tensor = saved
        if save is not None:
            self._tape.unpack(save, len(self.records))
        return tensor

    def _see(self, tensor: torch.Tensor, number: int, *, is_written: bool = False) -> None:
        if self._tape.is_on and self._phase is Phase.FORWARD and not self.storages.lives[number].given:
            self._tape.see(tensor, number, is_written=is_written)

    def _is_on_host(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._host  # noqa: SLF001 - its identity


_FROM_DATA: Final = torch.ops.aten.lift_fresh.default
"""Makes a tensor of Python's numbers."""
_DETACH: Final = torch.ops.aten.detach.default
