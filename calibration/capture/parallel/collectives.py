"""Collectives among dispatched operators, the tensors that they read and write, and the stream of an operator.

Operators of `c10d` declare no writes in their schemas. Functional collectives, as DTensor has them, return their result
and are waited for at once.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import distributed
from torch._ops import OpOverload
from torch.distributed import ProcessGroup
from torch.distributed.distributed_c10d import _resolve_process_group  # type: ignore[attr-defined]  # no public one

from calibration.capture.schemas import arguments_of, name_of, tensors_in
from calibration.capture.storages import element_type_of
from vdnnsim.dnn.collective import Collective, CollectiveKind
from vdnnsim.dnn.step import Access
from vdnnsim.errors import CaptureError

_DEFAULT_STREAM: Final = torch.cpu.current_stream()
Used = tuple[tuple[torch.Tensor, Access], ...]


@dataclass(frozen=True, slots=True)
class Exchange:
    """An operator of communication.

    Attributes:
        collective: None of a copy into a buffer for one.
        used: the tensors of arguments and results, and how it uses them.
        bytes_moved: by a kernel of this GPU; a collective's cost is another.
        asynchronous: whether the program goes on while it runs on a stream of NCCL's.
    """

    collective: Collective | None
    used: Used
    bytes_moved: int = 0
    asynchronous: bool = False


def exchange_of(func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: object) -> Exchange | None:
    """Return what an operator exchanges; None of any other.

    Raises:
        CaptureError: it is a collective that has no place in a captured step.
    """
    library = func.namespace
    if library == "fsdp" and name_of(func) == "all_gather_copy_in":
        # Its result is a view of the buffer.
        inputs, buffer = args[0], args[1]
        moved = 2 * sum(map(_nbytes, inputs))
        return Exchange(None, (*((each, Access.READ) for each in inputs), (buffer, Access.UPDATE)), moved)
    if library == "c10d":
        return _of_library(name_of(func), args, arguments_of(func, args, kwargs))
    if library == "_c10d_functional":
        return _functional(name_of(func), arguments_of(func, args, kwargs), result)
    return None


def runs_aside() -> bool:
    """Return whether the program runs operators on another stream than the default one of their device."""
    if torch.cpu.current_stream() is not _DEFAULT_STREAM:
        return True
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return False
    return bool(torch.cuda.current_stream().cuda_stream != torch.cuda.default_stream().cuda_stream)


def _of_library(name: str, args: tuple[Any, ...], named: Mapping[str, Any]) -> Exchange | None:
    if name in _WITHOUT_DATA:
        return None
    if name not in _BY_NAME:
        raise CaptureError(f"c10d.{name}: the program runs this collective, which no captured step has")
    kind, places = _BY_NAME[name]
    group = next(each for each in args if _is_group(each))
    parts = [(tensors_in(args[place]), access) for place, access in places]
    whole = max((sum(map(_nbytes, tensors)) for tensors, _ in parts), default=0)
    first = next(each for tensors, _ in parts for each in tensors)
    flat = tuple((each, access) for tensors, access in parts for each in tensors)
    if kind in (CollectiveKind.SEND, CollectiveKind.RECEIVE):
        stride = _ranks(group)[args[2]] - distributed.get_rank()
        return Exchange(Collective(kind, whole, element_type_of(first), 2, stride), flat, asynchronous=True)
    asynchronous = next((bool(value) for key, value in named.items() if key.startswith("async")), False)
    return Exchange(_collective(kind, whole, first, _ranks(group)), flat, asynchronous=asynchronous)


def _functional(name: str, given: Mapping[str, Any], result: object) -> Exchange | None:
    if name in _OF_RESULTS:
        return Exchange(None, ())
    base = name.rstrip("_")
    if base not in _FUNCTIONAL:
        raise CaptureError(f"_c10d_functional.{name}: the program runs this collective, which no captured step has")
    ranks = distributed.get_process_group_ranks(_resolve_process_group(given["group_name"]))
    inputs = tensors_in([given.get("input"), given.get("self"), given.get("inputs")])
    made = tensors_in(result)
    whole = max(sum(map(_nbytes, inputs)), sum(map(_nbytes, made)))
    used: Used
    if name.endswith("_"):
        used = tuple((each, Access.UPDATE) for each in inputs)
    else:
        used = (*((each, Access.READ) for each in inputs), *((each, Access.WRITE) for each in made))
    return Exchange(_collective(_FUNCTIONAL[base], whole, inputs[0], ranks), used)


def _collective(kind: CollectiveKind, nbytes: int, tensor: torch.Tensor, ranks: Sequence[int]) -> Collective | None:
    if len(ranks) == 1:
        return None
    stride = ranks[1] - ranks[0]
    if list(ranks) != list(range(ranks[0], ranks[0] + len(ranks) * stride, stride)):
        raise CaptureError(
            f"a process group has the ranks {', '.join(map(str, ranks))}, expected equal distances between them, as in "
            "a dimension of a DeviceMesh"
        )
    return Collective(kind, nbytes, element_type_of(tensor), len(ranks), stride)


def _is_group(value: object) -> bool:
    return isinstance(value, ProcessGroup | torch.ScriptObject)


def _ranks(group: Any) -> list[int]:  # noqa: ANN401 - a group, or PyTorch's box of one
    found = group if isinstance(group, ProcessGroup) else ProcessGroup.unbox(group)
    return distributed.get_process_group_ranks(found)


def _nbytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


_Places = tuple[tuple[int, Access], ...]
_TO_FIRST: Final[_Places] = ((1, Access.READ), (0, Access.WRITE))
_IN_PLACE: Final[_Places] = ((0, Access.UPDATE),)
_BY_NAME: Final[Mapping[str, tuple[CollectiveKind, _Places]]] = MappingProxyType(
    {
        "_allgather_base_": (CollectiveKind.ALL_GATHER, _TO_FIRST),
        "allgather_": (CollectiveKind.ALL_GATHER, _TO_FIRST),
        "allgather_into_tensor_coalesced_": (CollectiveKind.ALL_GATHER, _TO_FIRST),
        "_reduce_scatter_base_": (CollectiveKind.REDUCE_SCATTER, _TO_FIRST),
        "reduce_scatter_": (CollectiveKind.REDUCE_SCATTER, _TO_FIRST),
        "reduce_scatter_tensor_coalesced_": (CollectiveKind.REDUCE_SCATTER, _TO_FIRST),
        "allreduce_": (CollectiveKind.ALL_REDUCE, _IN_PLACE),
        "allreduce_coalesced_": (CollectiveKind.ALL_REDUCE, _IN_PLACE),
        "alltoall_base_": (CollectiveKind.ALL_TO_ALL, _TO_FIRST),
        "alltoall_": (CollectiveKind.ALL_TO_ALL, _TO_FIRST),
        "broadcast_": (CollectiveKind.BROADCAST, _IN_PLACE),
        "send": (CollectiveKind.SEND, ((0, Access.READ),)),
        "recv_": (CollectiveKind.RECEIVE, ((0, Access.WRITE),)),
    }
)
"""Of `c10d`, by name: what it does, and the positions of arguments that are tensors."""
_WITHOUT_DATA: Final = frozenset({"barrier", "monitored_barrier_"})
_OF_RESULTS: Final = frozenset({"wait_tensor", "_wrap_tensor_autograd"})
"""Of `_c10d_functional`: what a program does with a result until it is there."""
_FUNCTIONAL: Final[Mapping[str, CollectiveKind]] = MappingProxyType(
    {
        "all_gather_into_tensor": CollectiveKind.ALL_GATHER,
        "all_gather_into_tensor_coalesced": CollectiveKind.ALL_GATHER,
        "reduce_scatter_tensor": CollectiveKind.REDUCE_SCATTER,
        "reduce_scatter_tensor_coalesced": CollectiveKind.REDUCE_SCATTER,
        "all_reduce": CollectiveKind.ALL_REDUCE,
        "all_reduce_coalesced": CollectiveKind.ALL_REDUCE,
        "all_to_all_single": CollectiveKind.ALL_TO_ALL,
        "broadcast": CollectiveKind.BROADCAST,
    }
)
"""Of `_c10d_functional`, by name without the underscore of those in place."""
