"""Kernels of the pretended GPU that compute: PyTorch's own for the CPU, over the bytes that device addresses stand for.

    with arithmetic_of_the_host():
        ...   # what PyTorch does on CUDA is computed, too

PyTorch's code for CUDA runs first and as it is: it allocates, chooses its kernels and launches them, and these compute
nothing. The same operator then runs on the CPU over the same bytes, at the place in its stream where those kernels
stand, so what is read too early or overwritten too late is wrong here as it is on a GPU. Numbers of 16 bits are widened
to float32, computed and rounded once, as CUDA's kernels do; float32 is never rounded to TF32.

Refused by name: operators that draw random numbers but to fill a tensor, those whose results have a shape that only
values tell, and all under inference mode.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map

from calibration.capture.schemas import OperatorMode
from calibration.kernels.cudnn_graphs import Offer
from calibration.kernels.cudnn_library import CudnnLibrary
from calibration.kernels.cudnn_plans import ConvolutionPlan, ConvolutionProblem
from tests.host_arithmetic.convolutions import CONVOLUTIONS, put_plan
from tests.host_arithmetic.host_work import HostWork, host_view
from tests.pretended_gpu import is_pretended
from vdnnsim.errors import DeviceError, ExecutionRefused

_NARROW = (torch.float16, torch.bfloat16)

_WITHOUT_VALUES = frozenset(
    {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "resize_", "record_stream", "set_"}
)
"""Operators that leave values as they are, or undefined."""

_FILLS = frozenset({torch.ops.aten.uniform_.default, torch.ops.aten.random_.default, torch.ops.aten.random_.to})
"""Operators that fill a tensor with random numbers, which are any on a GPU and any here."""

_DENSE = (torch.contiguous_format, torch.channels_last)

_COPY = torch.ops.aten.copy_.default
_TO_COPY = torch.ops.aten._to_copy.default  # noqa: SLF001  # its public form is decomposed into it


@contextmanager
def arithmetic_of_the_host(lasts: Callable[[], float] | None = None) -> Iterator[None]:
    """Let the host compute what is launched on the pretended GPU, plans of `CudnnLibrary` among it.

    `lasts` returns how long the next operator keeps the current stream busy, in seconds; without it kernels last as
    the card says.

    Raises:
        DeviceError: the GPU is a real one, or its copies do not wait for their turn.
        ExecutionRefused: at an operator that cannot be computed, or at a later one where it failed in its stream.
    """
    if not is_pretended() or os.environ["VDNNSIM_PRETEND_COPIES"] != "delayed":
        raise DeviceError("the host computes for a pretended GPU alone, whose copies are delayed (--copies delayed)")
    work = HostWork(lasts)
    execute = CudnnLibrary._execute  # noqa: SLF001  # the one place where a plan meets its tensors

    def execute_and_compute(
        library: CudnnLibrary,
        problem: ConvolutionProblem,
        offer: Offer,
        plan: ConvolutionPlan,
        tensors: dict[str, torch.Tensor],
        workspace: torch.Tensor | None,
    ) -> None:
        execute(library, problem, offer, plan, tensors, workspace)
        put_plan(work, plan.name, problem, tensors, workspace)

    CudnnLibrary._execute = execute_and_compute  # type: ignore[assignment, method-assign]  # noqa: SLF001
    try:
        with _Arithmetic(work):
            yield
        torch.cuda.synchronize()
        work.raise_failure()
    finally:
        CudnnLibrary._execute = execute  # type: ignore[method-assign]  # noqa: SLF001


class _Arithmetic(OperatorMode):
    """Sends each operator of a thread, and of its backward passes, to the GPU and then to the host."""

    def __init__(self, work: HostWork) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._work = work

    def dispatch(self, operator: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        self._work.raise_failure()
        named = dict(kwargs)
        _refuse(operator, [*args, *named.values()])
        result = operator(*args, **named)
        returned = tree_leaves(result)
        if not _computes(operator, [*tree_leaves((args, named)), *returned]):
            return result
        if _crosses(operator, args, result) and _is_one_transfer(operator, args, result):
            return result
        call = _HostCall(operator, args, named)
        if any(isinstance(each, bool | int | float) for each in returned):
            # The host reads it, and waits for it.
            self._wait()
            return call.result()
        self._work.put(str(operator), partial(call.write, [host_view(each) for each in returned if each is not None]))
        if _crosses(operator, args, result) and not (returned[0].is_cuda or returned[0].is_pinned()):
            self._wait()
        return result

    def _wait(self) -> None:
        torch.cuda.current_stream().synchronize()
        self._work.raise_failure()


class _HostCall:
    """An operator called once more, on the host, by its arguments as they are when it is its turn."""

    def __init__(self, operator: OpOverload, args: tuple[Any, ...], named: Mapping[str, Any]) -> None:
        self._operator = operator
        parameters = operator._schema.arguments  # noqa: SLF001  # has no public form
        positional = [each.name for each in parameters][: len(args)]
        given = {**dict(zip(positional, args, strict=True)), **named}
        if operator in _FILLS:
            # Not the host's own, whose numbers would then hang on when the stream gets there.
            given["generator"] = torch.Generator()
        self._positional = len(args)
        self._written = {each.name for each in parameters if each.is_write}
        self._given = {
            name: tree_map(partial(_as_given, written=name in self._written), each) for name, each in given.items()
        }

    def result(self) -> Any:  # noqa: ANN401  # whatever the operator returns
        """Compute; what the operator writes into is written."""
        if self._operator in CONVOLUTIONS:
            return self._called(CONVOLUTIONS[self._operator], self._given)
        if not any(_is_narrow(each) for each in tree_leaves(self._given)):
            return self._called(self._operator, self._given)
        wide = {name: tree_map(_widened, each) for name, each in self._given.items()}
        result = self._called(self._operator, wide)
        for name in self._written & self._given.keys():
            for target, found in zip(tree_leaves(self._given[name]), tree_leaves(wide[name]), strict=True):
                target.copy_(found)
        return result

    def write(self, targets: Sequence[torch.Tensor]) -> None:
        """Compute, and write what is returned into memory that the operator on the GPU took for it."""
        found = [each for each in tree_leaves(self.result()) if each is not None]
        aliases = [each.alias_info is not None for each in self._operator._schema.returns]  # noqa: SLF001  # as above
        if any(aliases):
            return
        for each, target in zip(found, targets, strict=True):
            assert each.shape == target.shape, f"{self._operator}: {each.shape} on the host, {target.shape} on CUDA"
            target.copy_(each)

    def _called(self, function: Callable[..., Any], given: Mapping[str, Any]) -> Any:  # noqa: ANN401  # as above
        values = list(given.values())
        names = list(given)[self._positional :]
        return function(*values[: self._positional], **dict(zip(names, values[self._positional :], strict=True)))


def _refuse(operator: OpOverload, given: Sequence[Any]) -> None:
    """Refuse what the GPU's own code would get wrong before the host could compute it."""
    leaves = tree_leaves(given)
    if not any(isinstance(each, torch.Tensor | torch.device) and _is_cuda(each) for each in leaves):
        return
    if torch.is_inference_mode_enabled():
        raise ExecutionRefused(f"{operator}: under inference mode PyTorch takes no operator apart, and some are views")
    if torch.Tag.nondeterministic_seeded in operator.tags and operator not in _FILLS:
        raise ExecutionRefused(f"{operator}: of random numbers, a pretended GPU only fills tensors with them")
    if torch.Tag.dynamic_output_shape in operator.tags:
        raise ExecutionRefused(f"{operator}: values tell the shape of its result, and a pretended GPU has none in time")


def _is_cuda(each: torch.Tensor | torch.device) -> bool:
    return (each if isinstance(each, torch.device) else each.device).type == "cuda"


def _computes(operator: OpOverload, leaves: Sequence[Any]) -> bool:
    if operator.is_view or operator.overloadpacket.__name__ in _WITHOUT_VALUES:
        return False
    return any(isinstance(each, torch.Tensor) and each.is_cuda for each in leaves)


def _crosses(operator: OpOverload, args: tuple[Any, ...], result: Any) -> bool:  # noqa: ANN401  # of any operator
    """Whether it copies between host and device."""
    if operator not in {_COPY, _TO_COPY}:
        return False
    target, source = _copied(operator, args, result)
    return target.device.type != source.device.type


def _is_one_transfer(operator: OpOverload, args: tuple[Any, ...], result: Any) -> bool:  # noqa: ANN401  # as above
    """Whether it moves bytes as they lie, by the copy engine alone, which the runtime does."""
    target, source = _copied(operator, args, result)
    alike = target.dtype == source.dtype and target.shape == source.shape and target.stride() == source.stride()
    return alike and any(target.is_contiguous(memory_format=each) for each in _DENSE)


def _copied(operator: OpOverload, args: tuple[Any, ...], result: Any) -> tuple[torch.Tensor, torch.Tensor]:  # noqa: ANN401
    return (args[0], args[1]) if operator is _COPY else (result, args[0])


def _as_given(each: Any, *, written: bool) -> Any:  # noqa: ANN401  # any argument of any operator
    """Return an argument for the host. What the host itself holds is read when the operator is called."""
    if isinstance(each, torch.Tensor):
        return host_view(each) if each.is_cuda or written else each.clone()
    if isinstance(each, torch.device):
        return torch.device("cpu")
    return each


def _is_narrow(each: Any) -> bool:  # noqa: ANN401  # as above
    return isinstance(each, torch.Tensor) and each.dtype in _NARROW


def _widened(each: Any) -> Any:  # noqa: ANN401  # as above
    if _is_narrow(each):
        return each.float()
    return torch.float32 if each in _NARROW else each
