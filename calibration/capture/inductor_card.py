"""The GPU that Inductor compiles for on a machine without it: its figures, and fake tensors that pass for CUDA's.

Fake tensors of CUDA abort the process where there is none, so they are the CPU's while anything runs on them.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

import torch
from torch._dynamo import device_interface
from torch._inductor import compile_fx as inductor
from torch._inductor.fx_passes.reinplace import reinplace_inplaceable_ops
from torch._inductor.runtime.hints import DeviceProperties
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.node import map_aggregate
from torch.utils._pytree import tree_leaves, tree_map

from calibration.capture.as_cuda import multiprocessors_of

CUDA: Final = torch.device("cuda:0")
_CPU: Final = torch.device("cpu")
_DECOMPOSING: Final = frozenset(
    {
        "torch._inductor.decomposition",
        "torch._decomp.decompositions",
        "torch._decomp.decompositions_for_rng",
        "torch._refs",
        "torch._refs.nn.functional",
    }
)
"""Modules that rewrite operators by the device of their tensors."""
_CONVOLUTIONS: Final = (torch.ops.aten.convolution.default, torch.ops.aten.convolution_backward.default)
_ONE_DIMENSION: Final = 3
"""Dimensions of the operands of a convolution in one."""
_PROPAGATE: Final = inductor.fake_tensor_prop
_DEVICE_OF: Final = vars(FakeTensor)["device"].fget


@contextmanager
def card(compute_capability: tuple[int, int]) -> Iterator[None]:
    count, threads = multiprocessors_of(compute_capability)
    major, minor = compute_capability
    properties = SimpleNamespace(
        name="",
        major=major,
        minor=minor,
        multi_processor_count=count,
        max_threads_per_multi_processor=threads,
        max_threads_per_block=1024,
        regs_per_multiprocessor=65536,
        warp_size=32,
        total_memory=0,
        shared_memory_per_block_optin=0,
        gcnArchName="",
    )

    def answer(value: object) -> Any:  # noqa: ANN401 - a static method
        return staticmethod(lambda *_, **__: value)

    class Worker(device_interface.CudaInterface.Worker):
        current_device = answer(0)
        get_device_properties = answer(properties)

    answers = {
        "is_available": True,
        "current_device": 0,
        "device_count": 1,
        "get_device_properties": properties,
        "get_compute_capability": 10 * major + minor,
        "is_bf16_supported": major >= 8,
        "is_triton_capable": True,
        "raise_if_triton_unavailable": None,
    }
    interface = type(
        "Interface",
        (device_interface.CudaInterface,),
        {name: answer(each) for name, each in answers.items()} | {"Worker": Worker},
    )
    DeviceProperties.create.cache_clear()
    with (
        mock.patch.dict(device_interface.device_interfaces, {"cuda": interface}),
        mock.patch("torch.cuda.current_device", return_value=0),
        mock.patch("torch.cuda.get_device_properties", return_value=properties),
        mock.patch("torch.cuda.get_device_capability", return_value=compute_capability),
        mock.patch("torch._inductor.scheduler.has_triton", return_value=True),
        mock.patch.dict(fake_impls.op_implementations_dict, dict.fromkeys(_CONVOLUTIONS, _convolution)),
    ):
        try:
            yield
        finally:
            DeviceProperties.create.cache_clear()


def _convolution(fake_mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - PyTorch's
    """Find the shape of a convolution; in one dimension PyTorch would copy operands that lie otherwise, on CUDA."""

    def contiguous(value: Any) -> Any:  # noqa: ANN401 - an argument
        if isinstance(value, FakeTensor) and value.ndim == _ONE_DIMENSION and not value.is_contiguous():
            with fake_mode:
                return torch.empty(value.shape, dtype=value.dtype, device=value.device)
        return value

    return fake_impls.conv(fake_mode, func, *tree_map(contiguous, args), **tree_map(contiguous, kwargs))


def move(graph: torch.fx.Graph, inputs: Sequence[Any], device: torch.device) -> None:
    def move(value: object) -> None:
        if isinstance(value, FakeTensor):
            value.fake_device = device

    def moved(value: Any) -> Any:  # noqa: ANN401 - an argument of a node
        return device if isinstance(value, torch.device) else value

    tree_map(move, list(inputs))
    for node in graph.nodes:
        tree_map(move, node.meta.get("val"))
        given = tree_leaves((node.args, node.kwargs))
        # Inductor takes a node with new arguments for a changed one.
        if node.op == "call_function" and any(isinstance(each, torch.device) for each in given):
            node.args, node.kwargs = map_aggregate(node.args, moved), map_aggregate(node.kwargs, moved)


def propagate(graph: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:  # noqa: ANN401 - Inductor's
    """Find the shapes of a graph on the CPU: some operators of Python ask CUDA for its device."""
    with _on_cpu(graph.graph, inputs):
        return _PROPAGATE(graph, inputs, **options)


def reinplace(updater: Any, graph: torch.fx.Graph) -> None:  # noqa: ANN401 - Inductor's
    """Let operators write over their inputs, as Inductor does: PyTorch without CUDA cannot copy there."""
    with _on_cpu(graph):
        reinplace_inplaceable_ops(updater, graph)


@contextmanager
def _on_cpu(graph: torch.fx.Graph, inputs: Sequence[Any] = ()) -> Iterator[None]:
    move(graph, inputs, _CPU)
    yield
    move(graph, inputs, CUDA)


class _LooksLikeCuda(str):
    """The CPU, wherever PyTorch takes a device, that says it were CUDA."""

    __slots__ = ()
    type = "cuda"
    index = 0  # type: ignore[assignment]  # that of a device, not of a text


def _device_of(tensor: FakeTensor) -> Any:  # noqa: ANN401 - as PyTorch has it, or what stands in
    device = _DEVICE_OF(tensor)
    decomposes = sys._getframe(1).f_globals.get("__name__") in _DECOMPOSING  # noqa: SLF001
    # Within a kernel of shapes it is meta.
    return _LooksLikeCuda("cpu") if decomposes and device == _CPU else device


@contextmanager
def decomposing_for_cuda() -> Iterator[None]:
    """Let PyTorch rewrite operators on fake tensors of the CPU as it does on those of CUDA."""
    with mock.patch.object(FakeTensor, "device", property(_device_of)):
        yield
