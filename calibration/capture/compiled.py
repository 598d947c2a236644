"""Captures models as torch.compile compiles them, for a GPU that this machine lacks.

Dynamo and AOTAutograd trace the model, and Inductor lowers each graph for CUDA, by their own rules; figures of the card
stand in for its driver. Inductor's program then runs on fake tensors: what it allocates, reuses, launches and frees is
recorded as anything else is. Kernels are not compiled: behind Triton's code, each has a description.
"""

import pkgutil
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

import msgspec
import torch
from torch import nn
from torch._dynamo import config as dynamo_config
from torch._dynamo import trace_rules
from torch._functorch import config as functorch_config
from torch._functorch import partitioners
from torch._inductor import compile_fx as inductor
from torch._inductor import config as inductor_config
from torch._inductor.codegen.triton import TritonKernel
from torch._inductor.fx_passes import post_grad
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from calibration.capture.cuda import recurrent
from calibration.capture.fake_tensors import FakeTensors
from calibration.capture.inductor_card import CUDA, card, decomposing_for_cuda, move, propagate, reinplace
from calibration.capture.recorder import Recorder
from calibration.capture.schemas import arguments_of
from calibration.capture.wrapped import is_sharded, refuse_compiled
from vdnnsim.dnn.step import Access

_ACCESSES: Final = (("in_out_ptr", Access.UPDATE), ("in_ptr", Access.READ), ("", Access.WRITE))
"""By how the name of an argument begins; outputs and workspaces are written."""
_OF_TRITON: Final = re.compile(
    r"^\s*(import triton|from torch\._inductor\.runtime\.triton|from torch\._C import).*$", re.MULTILINE
)
_OF_DEVICE: Final = re.compile(r"torch\.cuda\.(_DeviceGuard|set_device)\(\d+\)")
_NO_ARITHMETIC: Final = frozenset(
    {"load", "store", "constant", "index_expr", "to_dtype", "get_index", "masked_subblock"}
)
_NOTE: Final = "Kernels and buffers of the {} are those of torch.compile; {} are run eagerly."
_RECURRENT: Final = torch.ops.aten._cudnn_rnn_backward.default  # noqa: SLF001
_WRITE: Final = TritonKernel.codegen_kernel
_MOST_GRAPHS: Final = 256

_OF_MODELS: Final = (
    "calibration.capture.lora",
    "calibration.capture.chunked_loss",
    "calibration.capture.checkpointing",
)

# Dynamo passes over our code that runs between graphs, and is no part of a model.
for _each in pkgutil.iter_modules([str(Path(__file__).parent)], "calibration.capture."):
    if _each.name not in _OF_MODELS:
        trace_rules.add(_each.name)


class Kernel(msgspec.Struct, frozen=True):
    """A kernel that Inductor fused.

    Attributes:
        arguments: their names, tensors first, as `in_ptr0`.
        nbytes: that it moves, by Inductor's own estimate.
        flop: its arithmetic at each point.
        name: as a profiler shows it, `triton_poi_fused_gelu_view_9`.
    """

    arguments: tuple[str, ...]
    nbytes: int
    flop: int
    name: str = ""

    def run(self, *values: Any, **_: Any) -> None:  # noqa: ANN401 - as Inductor's programs call it
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
    """Compile the calls of a model for a card of a compute capability; yields a note about it.

    Of a model that FSDP shards its blocks alone, each by itself, as torchtitan does it.

    Raises:
        CaptureError: a part of it is compiled already.
    """
    refuse_compiled(model)

    def lower(graph: torch.fx.GraphModule, inputs: Sequence[Any], **options: Any) -> Any:  # noqa: ANN401
        programs: list[Callable[..., Any]] = []

        def load(lowering: GraphLowering) -> SimpleNamespace:
            programs.append(_program(lowering))
            return SimpleNamespace(call=programs[-1], __file__="", runner=None)

        move(graph.graph, inputs, CUDA)
        with (
            card(compute_capability),
            mock.patch.object(GraphLowering, "compile_to_module", load),
            mock.patch.object(inductor, "fake_tensor_prop", propagate),
            mock.patch.object(post_grad, "reinplace_inplaceable_ops", reinplace),
            mock.patch.object(TritonKernel, "codegen_kernel", _described),
            # It names the version of Triton.
            mock.patch.object(TritonKernel, "inductor_meta_common", dict),
        ):
            as_it_is = inductor.compile_fx_inner(graph, inputs, **options)
        # There is no program where a graph returns what it is given.
        return programs[0] if programs else as_it_is

    def backend(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:  # noqa: ANN401 - what PyTorch makes
        with decomposing_for_cuda():
            return inductor.compile_fx(graph, inputs, inner_compile=lower)

    def compiled(module: nn.Module) -> Callable[..., Any]:
        call = torch.compile(module.forward, backend=backend, dynamic=False)

        def forward(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - those of the module
            with _same_autocast():
                return call(*args, **kwargs)

        return forward

    with (
        ExitStack() as calls,
        torch.library._scoped_library("aten", "IMPL") as library,  # noqa: SLF001 - of torch/library.py, as documented
        # Strides that PyTorch assumes of saved slices and recurrent layers are not always those that they have.
        inductor_config.patch(fx_graph_cache=False, compile_threads=1, size_asserts=False, alignment_asserts=False),
        functorch_config.patch(enable_autograd_cache=False),
        # States of CUDA's random numbers, which checkpoints save on the host.
        mock.patch.object(partitioners, "functionalize_rng_ops", lambda _, forward, backward, __: (forward, backward)),
        dynamo_config.patch(recompile_limit=_MOST_GRAPHS, fail_on_recompile_limit_hit=True),
        warnings.catch_warnings(),
    ):
        # By autograd's engine of results of Inductor's programs, and by Dynamo of what passes a graph break.
        warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")
        warnings.filterwarnings("ignore", r"The \.grad attribute of a Tensor")
        # PyTorch would run it to see what it returns.
        library.impl(_RECURRENT, _recurrent_backward, "Meta")
        blocks = _blocks(model)
        for each in blocks or [model]:
            calls.enter_context(mock.patch.object(each, "forward", compiled(each)))
        try:
            of_model = "model", "the loss and the optimizer"
            yield (_NOTE.format(*("blocks", "all others, with loss and optimizer,") if blocks else of_model),)
        finally:
            torch._dynamo.reset()  # noqa: SLF001


def _blocks(model: nn.Module) -> list[nn.Module]:
    """Return the modules within a model that FSDP shards each by itself."""
    if not is_sharded(model):
        return []
    from torch.distributed.fsdp import FSDPModule

    return [each for each in model.modules() if isinstance(each, FSDPModule) and each is not model]


def _recurrent_backward(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as PyTorch calls it
    return recurrent.KERNELS[_RECURRENT](arguments_of(_RECURRENT, args, kwargs))


@contextmanager
def _same_autocast() -> Iterator[None]:
    """Put autocast of CUDA into the state of the CPU's, which stands for it: Dynamo restores both."""
    # PyTorch's public function tells the state of the CPU's autocast for both (`calibration.capture.cuda.autocast`).
    before = torch._C.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")  # noqa: SLF001
    torch.set_autocast_enabled("cuda", torch.is_autocast_enabled("cpu"))
    torch.set_autocast_dtype("cuda", torch.get_autocast_dtype("cpu"))
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", before[0])
        torch.set_autocast_dtype("cuda", before[1])


def _described(kernel: Any, name: str | None = None) -> str:  # noqa: ANN401 - in place of its `codegen_kernel`
    """Return the code of a kernel of Triton, behind which stands a `Kernel`, as JSON."""
    nbytes = int(kernel.estimate_kernel_num_bytes())
    text = _WRITE(kernel, name)
    names = [str(getattr(each, "name", each)) for each in kernel.args.python_argdefs()[0]]
    points = V.graph.sizevars.optimization_hint(kernel.features.numel * kernel.features.reduction_numel)
    arithmetic = sum(count for kind, count in kernel.features.op_counts().items() if kind not in _NO_ARITHMETIC)
    return f"{text}\n# {msgspec.json.encode(Kernel(tuple(names), nbytes, int(points) * arithmetic)).decode()}"


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
        return msgspec.structs.replace(msgspec.json.decode(text.strip().rpartition("\n# ")[2], type=Kernel), name=name)

    def wait(self, names: dict[str, Any]) -> None:
        pass


def _reinterpreted(tensor: torch.Tensor, size: Sequence[int], stride: Sequence[int], offset: int = 0) -> torch.Tensor:
    return torch.as_strided(tensor, size, stride, int(tensor.storage_offset()) + offset)
