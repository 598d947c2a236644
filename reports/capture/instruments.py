"""Saved and live bytes of a real iteration on the CPU, by three instruments independent of the recorder.

Saved bytes are measured by hooks and, in another forward, in autograd's graph; live bytes by the CPU's allocator, from
PyTorch's profiler.
"""

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from weakref import WeakSet

import msgspec
import torch
from torch.autograd.graph import Node, saved_tensors_hooks
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils._pytree import tree_leaves

from calibration.capture.iteration import Iteration
from calibration.capture.preparation import prepare
from calibration.capture.program import Program
from vdnnsim.dnn.layers import Phase

_MEASURED = "the iteration that is measured"


@dataclass(frozen=True, slots=True)
class Measured:
    """An iteration, in bytes.

    Attributes:
        hooked_saved_bytes: storages given to hooks in forward and held when backward begins, without parameters,
            buffers and inputs; the largest of several forwards.
        walked_saved_bytes: the same in the graph of the loss.
        peak_bytes: of the allocator, without scratch memory of kernels.
        allocator_peak_bytes: with their scratch memory.
    """

    hooked_saved_bytes: int
    walked_saved_bytes: int
    peak_bytes: int
    allocator_peak_bytes: int


class _Held:
    """A saved tensor, without its node: a saved result would hold itself."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor.detach()


class _Collected(Exception):  # noqa: N818 - no error
    """Ends a backward once its saved tensors are known."""


def measure(program: Program) -> Measured:
    """Run an iteration for each instrument, after one that makes optimizer states."""
    # The allocator first: libraries keep memory from the first run on.
    peaks = _peaks(program)
    hooked = _hooked_saved_bytes(_warm(program))
    walked: list[int] = []

    def walk(output: Any) -> torch.Tensor:  # noqa: ANN401 - whatever the model returns
        loss = program.loss(output)
        walked.append(sum(_saved_in_graph(loss, given).values()))
        return loss

    iteration = _warm(program)
    given = _given(iteration)
    replace_loss(iteration, walk).run(lambda _: None)
    return Measured(hooked, max(walked), *peaks)


def replace_loss(iteration: Iteration, loss: Callable[[Any], torch.Tensor]) -> Iteration:
    """Return an iteration that ends in another loss."""
    return replace(iteration, program=msgspec.structs.replace(iteration.program, loss=loss))


def _warm(program: Program) -> Iteration:
    torch.manual_seed(0)
    iteration = prepare(program, program.make_model(), "cpu", foreach=False)
    iteration.run(lambda _: None)
    return iteration


def _key(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001 - as PyTorch's own StorageWeakRef


def _given(iteration: Iteration) -> set[int]:
    model = iteration.model
    tensors = [*model.parameters(), *model.buffers(), *tree_leaves(iteration.batches)]
    return {_key(each) for each in tensors if isinstance(each, torch.Tensor)}


def _hooked_saved_bytes(iteration: Iteration) -> int:
    given = _given(iteration)
    most: list[int] = []
    held: WeakSet[_Held] = WeakSet()

    def enter(phase: Phase) -> None:
        if phase is Phase.BACKWARD:
            tensors = [each.tensor for each in held if _key(each.tensor) not in given]
            most.append(sum({_key(each): each.untyped_storage().nbytes() for each in tensors}.values()))

    def pack(tensor: torch.Tensor) -> _Held:
        handle = _Held(tensor)
        held.add(handle)
        return handle

    with saved_tensors_hooks(pack, lambda handle: handle.tensor):
        iteration.run(enter)
    return max(most)


def _saved_in_graph(loss: torch.Tensor, given: set[int]) -> dict[int, int]:
    """Return the bytes of storages held by nodes of the graph of a loss."""
    nodes = [*_nodes_of(loss)]
    leaves = [each.variable for each in nodes if hasattr(each, "variable")]
    known = given | {_key(each.grad) for each in leaves if each.grad is not None}
    held = [*_collected(loss), *(each for node in nodes for each in _held_by(node))]
    saved = [each for each in held if _key(each) not in known and not _is_number(each)]
    return {_key(each): each.untyped_storage().nbytes() for each in saved}


def _collected(loss: torch.Tensor) -> list[torch.Tensor]:
    """Return tensors held by nodes without hooks, by way of compiled autograd, which here traces nothing.

    It alone sees the node within a `CopySlices`, as of an in-place operation on a view.
    """
    found: list[torch.Tensor] = []

    class Collector:
        def begin_capture(self, tensors: list[torch.Tensor], *_: object) -> None:
            found.extend(tensors)
            raise _Collected

        def close(self) -> None:
            pass

    seed = torch.ones_like(loss)
    compiled = torch._C._dynamo.compiled_autograd  # noqa: SLF001 - there is no public way
    before = compiled.set_autograd_compiler(Collector, False)  # type: ignore[arg-type]  # noqa: FBT003
    try:
        with torch.autograd.set_multithreading_enabled(False), suppress(_Collected):
            loss.backward(seed)  # type: ignore[no-untyped-call]
    finally:
        compiled.set_autograd_compiler(*before)
    return [each for each in found if _key(each) != _key(seed)]


def _nodes_of(loss: torch.Tensor) -> Iterator[Node]:
    assert loss.grad_fn is not None
    nodes, waiting = {loss.grad_fn}, [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        yield node
        new = {each for each, _ in node.next_functions if each is not None} - nodes
        nodes |= new
        waiting += new


def _held_by(node: Node) -> Iterator[torch.Tensor]:
    """Yield tensors in the attributes of a node and in its hooks."""
    for saved in [*_saved_of(node)]:
        held = (saved.data, *_held_by_hook(saved.unpack_hook))
        yield from (each for each in held if isinstance(each, torch.Tensor))


def _saved_of(node: Node) -> Iterator[Any]:
    """Yield PyTorch's handles of the saved tensors of a node, without unpacking them."""
    for name in dir(node):
        if name.startswith("_raw_saved_"):
            saved = getattr(node, name)
            yield from (each for each in (saved if isinstance(saved, tuple | list) else [saved]) if _is_filled(each))


def _is_filled(saved: Any) -> bool:  # noqa: ANN401 - PyTorch's `SavedTensor` has no type
    try:
        return saved.data is not None
    except RuntimeError:  # nothing was saved, as of an argument that needs no gradient
        return False


def _held_by_hook(hook: Any) -> Iterator[Any]:  # noqa: ANN401 - whatever was given as a hook, or none
    """Yield the arguments that checkpointing keeps in a hook."""
    for cell in getattr(hook, "__closure__", None) or ():
        for each in getattr(cell.cell_contents, "saved_args", ()):
            yield each.data if hasattr(each, "unpack_hook") else each


def _is_number(tensor: torch.Tensor) -> bool:
    """Whether it may be a Python number, which hooks never see."""
    # By type promotion, which differs for wrapped numbers.
    narrow = {torch.float64: torch.float16, torch.int64: torch.int8}.get(tensor.dtype)
    return narrow is not None and torch.result_type(tensor, torch.zeros((), dtype=narrow)) is narrow


@dataclass(slots=True)
class _Allocation:
    """An allocation, or a free with negative bytes, and its operator call."""

    time_ns: int
    nbytes: int
    address: int
    call: int | None


def _peaks(program: Program) -> tuple[int, int]:
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as profiler:
        iteration = _warm(program)
        gc.collect()
        gc.disable()
        try:
            with record_function(_MEASURED):
                held = iteration.run(lambda _: None)
        finally:
            gc.enable()
    del held
    roots = profiler.profiler.kineto_results.experimental_event_tree()
    allocations = sorted(_allocations(roots, None), key=lambda each: each.time_ns)
    (measured,) = (each for each in _events(roots) if each.name == _MEASURED)
    return _most(allocations, measured.start_time_ns, measured.end_time_ns)


def _most(allocations: list[_Allocation], begin_ns: int, end_ns: int) -> tuple[int, int]:
    """Return the peaks between two times, without and with scratch memory."""
    scratch = _scratch(allocations)
    live = everything = most = most_of_all = 0
    given: dict[int, int] = {}
    for number, each in enumerate(allocations):
        if each.nbytes > 0:
            given[each.address] = each.nbytes
        elif given.pop(each.address, None) is None:
            continue  # of before the profiler
        everything += each.nbytes
        if number not in scratch:
            live += each.nbytes
        if begin_ns <= each.time_ns <= end_ns:
            most, most_of_all = max(most, live), max(most_of_all, everything)
    return most, most_of_all


def _scratch(allocations: list[_Allocation]) -> set[int]:
    """Return the numbers of allocations that one call makes and frees, and of their frees."""
    scratch: set[int] = set()
    open_by: dict[int, int] = {}
    for number, each in enumerate(allocations):
        if each.nbytes > 0:
            open_by[each.address] = number
        else:
            begun = open_by.pop(each.address, None)
            if begun is not None and each.call is not None and allocations[begun].call == each.call:
                scratch |= {begun, number}
    return scratch


def _events(events: Iterable[Any]) -> Iterator[Any]:
    for each in events:
        yield each
        yield from _events(each.children)


def _allocations(events: Iterable[Any], call: int | None) -> Iterator[_Allocation]:
    """Yield allocations below events with their outermost call of a kernel operator."""
    for each in events:
        if each.tag.name == "Allocation":
            yield _Allocation(each.start_time_ns, each.typed[1].alloc_size, each.typed[1].ptr, call)
        else:
            is_call = each.tag.name == "TorchOp" and each.name in _kernels() and not _calls_itself(each)
            yield from _allocations(each.children, each.start_time_ns if call is None and is_call else call)


def _calls_itself(event: Any) -> bool:  # noqa: ANN401 - an event of the profiler has no type
    """Whether one overload calls another, as `std` without a dimension."""
    return any(child.name == event.name for child in event.children)


@cache
def _kernels() -> frozenset[str]:
    """Return the names of operators that are not composite."""
    implicit = "CompositeImplicitAutograd"
    return frozenset(
        overload.partition(".")[0]
        for overload in torch._C._dispatch_get_all_op_names()  # noqa: SLF001 - there is no public way
        if not torch._C._dispatch_has_kernel_for_dispatch_key(overload, implicit)  # noqa: SLF001
    )
