"""Models of torch.compile, for a card that is not there.

Dynamo and AOTAutograd trace the model, and Inductor lowers each graph for CUDA, by their own rules; figures of the card
stand in for its driver. Inductor's program then runs on fake tensors: what it allocates, reuses, launches and frees is
recorded as anything else is. Kernels are not compiled: in place of Triton's code, each has a description.
"""

import re
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

import msgspec
import torch
from torch import nn
from torch._dynamo import config as dynamo_config
from torch._dynamo import device_interface
from torch._functorch import config as functorch_config
from torch._inductor import compile_fx as inductor
from torch._inductor import config as inductor_config
from torch._inductor.codegen.triton import TritonKernel
from torch._inductor.graph import GraphLowering
from torch._inductor.runtime.hints import DeviceProperties
from torch._inductor.virtualized import V
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.node import map_aggregate
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_map

from calibration.capture.as_cuda import multiprocessors_of
from calibration.capture.fake_tensors import FakeTensors
from calibration.capture.recorder import Recorder
from calibration.capture.wrapped import refuse_compiled
from vdnnsim.dnn.step import Access

_CPU: Final = torch.device("cpu")
_CUDA: Final = torch.device("cuda:0")
_ACCESSES: Final = (("in_out_ptr", Access.UPDATE), ("in_ptr", Access.READ), ("", Access.WRITE))
"""By how the name of an argument begins; outputs and workspaces are written."""
_OF_TRITON: Final = re.compile(
    r"^\s*(import triton|from torch\._inductor\.runtime\.triton|from torch\._C import).*$", re.MULTILINE
)
_OF_DEVICE: Final = re.compile(r"torch\.cuda\.(_DeviceGuard|set_device)\(\d+\)")
_NO_ARITHMETIC: Final = frozenset(
    {"load", "store", "constant", "index_expr", "to_dtype", "get_index", "masked_subblock"}
)
_NOTE: Final = (
    "Kernels and buffers of the model are those of torch.compile; the loss and the optimizer are run eagerly."
)
_PROPAGATE: Final = inductor.fake_tensor_prop
_MOST_GRAPHS: Final = 256


class Kernel(msgspec.Struct, frozen=True):
    """A kernel that Inductor fused.

    Attributes:
        arguments: their names, tensors first, as `in_ptr0`.
        nbytes: that it moves, by Inductor's own estimate.
        flop: its arithmetic at each point.
        code: check sum of its code, so that kernels are the same where Inductor's are.
        name: as a profiler shows it, `triton_poi_fused_gelu_view_9`.
    """

    arguments: tuple[str, ...]
    nbytes: int
    flop: int
    code: int
    name: str = ""

    def run(self, *values: Any, **_: Any) -> None:  # noqa: ANN401 - as Inductor's programs call it
        """Record a launch."""
        tensors = [
            (value, next(access for begin, access in _ACCESSES if name.startswith(begin)))
            for name, value in zip(self.arguments, values, strict=False)
            if isinstance(value, torch.Tensor)
        ]
        for mode in _get_current_dispatch_mode_stack():
            if isinstance(mode, Recorder):
                mode.launch(f"triton::{self.name}", tensors, self.flop, self.nbytes)
            elif isinstance(mode, FakeTensors):
                for tensor, access in tensors:
                    if access.writes:
                        mode.overwrite(tensor)


@contextmanager
def compiling(model: nn.Module, compute_capability: tuple[int, int]) -> Iterator[tuple[str, ...]]:
    """Compile the calls of a model within, for a card of a compute capability; yields a note about it.

    Raises:
        CaptureError: a part of it is compiled already.
    """
    refuse_compiled(model)

    def lower(graph: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:  # noqa: ANN401
        programs: list[Callable[..., Any]] = []

        def load(lowering: GraphLowering) -> SimpleNamespace:
            programs.append(_program(lowering))
            return SimpleNamespace(call=programs[-1], __file__="", runner=None)

        _move(graph, inputs, _CUDA)
        with (
            _card(compute_capability),
            mock.patch.object(GraphLowering, "compile_to_module", load),
            mock.patch.object(inductor, "fake_tensor_prop", _propagate),
            mock.patch.object(TritonKernel, "codegen_kernel", _described),
        ):
            inductor.compile_fx_inner(graph, inputs, **options)
        return programs[0]

    def backend(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:  # noqa: ANN401 - what PyTorch makes
        return inductor.compile_fx(graph, inputs, inner_compile=lower)

    compiled = torch.compile(model.forward, backend=backend, dynamic=False)

    def forward(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - those of the model
        with _same_autocast():
            return compiled(*args, **kwargs)

    with (
        inductor_config.patch(fx_graph_cache=False, compile_threads=1),
        functorch_config.patch(enable_autograd_cache=False),
        dynamo_config.patch(recompile_limit=_MOST_GRAPHS, fail_on_recompile_limit_hit=True),
        mock.patch.object(model, "forward", forward),
        warnings.catch_warnings(),
    ):
        # By autograd's engine of results of Inductor's programs, and by Dynamo of what passes a graph break.
        warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")
        warnings.filterwarnings("ignore", r"The \.grad attribute of a Tensor")
        try:
            yield (_NOTE,)
        finally:
            torch._dynamo.reset()  # noqa: SLF001


@contextmanager
def _same_autocast() -> Iterator[None]:
    """Put autocast of CUDA into the state of the CPU's, which stands for it: Dynamo restores both."""
    torch.set_autocast_enabled("cuda", torch.is_autocast_enabled("cpu"))
    torch.set_autocast_dtype("cuda", torch.get_autocast_dtype("cpu"))
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", False)  # noqa: FBT003


@contextmanager
def _card(compute_capability: tuple[int, int]) -> Iterator[None]:
    """Let Inductor find a card and Triton."""
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
    ):
        yield
    DeviceProperties.create.cache_clear()


def _move(graph: torch.fx.GraphModule, inputs: Sequence[Any], device: torch.device) -> None:
    """Move a graph of fake tensors, and its inputs, to a device."""

    def move(value: object) -> None:
        if isinstance(value, FakeTensor):
            value.fake_device = device

    def moved(value: Any) -> Any:  # noqa: ANN401 - an argument of a node
        return device if isinstance(value, torch.device) else value

    tree_map(move, list(inputs))
    for node in graph.graph.nodes:
        tree_map(move, node.meta.get("val"))
        if node.op == "call_function":
            node.args, node.kwargs = map_aggregate(node.args, moved), map_aggregate(node.kwargs, moved)


def _propagate(graph: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:  # noqa: ANN401 - Inductor's
    """Find the shapes of a graph on the CPU: some operators of Python ask CUDA for its device."""
    _move(graph, inputs, _CPU)
    mode = _PROPAGATE(graph, inputs, **options)
    _move(graph, inputs, _CUDA)
    return mode


def _described(kernel: Any, name: str | None = None) -> str:  # noqa: ANN401, ARG001 - in place of its `codegen_kernel`
    """Return a `Kernel` for one of Triton, as JSON, behind the mark from which Inductor names its kind."""
    kernel.codegen_body()
    kernel.triton_meta, kernel.inductor_meta = {}, {}
    names = [str(getattr(each, "name", each)) for each in kernel.args.python_argdefs()[0]]
    points = V.graph.sizevars.optimization_hint(kernel.features.numel * kernel.features.reduction_numel)
    arithmetic = sum(count for kind, count in kernel.features.op_counts().items() if kind not in _NO_ARITHMETIC)
    code = zlib.crc32(kernel.body.getvalue().encode())
    found = Kernel(tuple(names), int(kernel.estimate_kernel_num_bytes()), int(points) * arithmetic, code)
    return f"@triton_heuristics.{kernel._get_heuristic()}(\n{msgspec.json.encode(found).decode()}"  # noqa: SLF001


def _program(lowering: GraphLowering) -> Callable[..., Any]:
    """Return the program of a lowered graph, which takes a list of fake tensors of the CPU and empties it."""
    wrapper, _ = lowering.codegen()
    text = str(getattr(wrapper, "value", wrapper))
    text = _OF_DEVICE.sub("nullcontext()", _OF_TRITON.sub("", text))
    names: dict[str, Any] = {"nullcontext": nullcontext, "get_raw_stream": int}
    with mock.patch("torch._inductor.async_compile.AsyncCompile", _Kernels):
        exec(text, names)  # noqa: S102 - Inductor's own
    names |= {
        "empty_strided_cuda": lambda size, stride, dtype: torch.empty_strided(size, stride, dtype=dtype),
        "reinterpret_tensor": _reinterpreted,
        "assert_size_stride": _pass,
        # Of PyTorch 2.14.
        "assert_size_stride_grouped": _pass,
        "assert_alignment": _pass,
        "device": lambda *_, **__: torch.device("cpu"),
    }
    call: Callable[..., Any] = names["call"]

    def run(inputs: list[Any]) -> Any:  # noqa: ANN401 - what the graph returns
        return call(inputs)

    run._boxed_call = True  # type: ignore[attr-defined]  # noqa: SLF001 - how AOTAutograd knows that it empties the list
    return run


class _Kernels:
    """In place of Inductor's compiler of kernels."""

    def triton(self, name: str, text: str, **_: Any) -> Kernel:  # noqa: ANN401 - as Inductor calls it
        return msgspec.structs.replace(msgspec.json.decode(text.strip().partition("\n")[2], type=Kernel), name=name)

    def wait(self, names: dict[str, Any]) -> None:
        pass


def _reinterpreted(tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int = 0) -> torch.Tensor:
    return torch.as_strided(tensor, size, stride, int(tensor.storage_offset()) + offset)


def _pass(*_: Any) -> None:  # noqa: ANN401
    pass
