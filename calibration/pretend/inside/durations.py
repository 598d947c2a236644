"""Durations of PyTorch's operators on the pretended GPU, by rooflines of a machine's rates.

    max(FLOPs / arithmetic rate, bytes / rate of DRAM) + overhead of each kernel

FLOPs are those of `torch.utils.flop_counter`, bytes those of the tensors that an operator reads and writes, each once.
Of Triton's kernels only bytes are known (`compiled`). Recurrent layers are a chain of kernels (`recurrent`).
Copies to and from the host are timed by the runtime.
Source: Williams, Waterman and Patterson, Roofline, Communications of the ACM 52(4), 2009.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import torch
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from .compiled import timed_kernels
from .driver import Driver
from .recurrent import recurrent_seconds

_TYPES: Mapping[torch.dtype, str] = {torch.float16: "float16", torch.bfloat16: "bfloat16"}
_SPARSE_READS = frozenset(
    ("embedding", "index", "index_select", "gather", "select_scatter", "_unsafe_index", "embedding_renorm")
)
"""Operators that read only the returned part of their first operand."""
_OVERWRITES = frozenset(("copy_", "fill_", "zero_", "normal_", "uniform_", "_foreach_copy_", "_foreach_zero_"))
"""Operators that only write their first operand."""
_OF_CUDNN = ("cudnn", "batch_norm", "ctc_loss")
"""Parts of names of operators without FLOPs that call cuDNN, whose kernels are not counted as launches."""
_CONVOLUTIONS = frozenset(("convolution", "_convolution", "cudnn_convolution", "convolution_backward"))
_RECURRENT = frozenset(("_cudnn_rnn", "_cudnn_rnn_backward"))


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of a machine's kernels.

    Attributes:
        convolution_flop_per_s, product_flop_per_s: arithmetic of convolutions, and of all else, by element type;
            `tf32` is of float32 whose products may be in TF32.
    """

    convolution_flop_per_s: Mapping[str, float]
    product_flop_per_s: Mapping[str, float]
    dram_bytes_per_s: float
    kernel_overhead_s: float


class OperatorTimes(TorchDispatchMode):  # type: ignore[no-untyped-call]  # PyTorch's own hook of subclasses
    """While it is active, operators last as the rates state.

    While any such mode is active PyTorch computes some gradients differently, so peaks of memory are not read then.

    Attributes:
        seconds: on GPUs, by the name of the operator.
    """

    def __init__(self, rates: Rates, driver: Driver) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._rates = rates
        self._driver = driver
        self.seconds: dict[str, float] = {}
        self._launches = timed_kernels(self._time_kernel)

    def __enter__(self) -> Self:
        """Begin, with the kernels of Triton too."""
        self._launches.__enter__()
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *raised: object) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        self._launches.__exit__(None, None, None)

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let torch.compile compile without this mode, and run with it."""
        return True

    def _time_kernel(self, name: str, moved_bytes: float, launch: Callable[[], Any]) -> Any:  # noqa: ANN401
        seconds = moved_bytes / self._rates.dram_bytes_per_s + self._rates.kernel_overhead_s
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self._driver.begin_operator(seconds)
        try:
            return launch()
        finally:
            self._driver.end_operator()

    def __torch_dispatch__(
        self,
        func: OpOverload[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        del types  # of tensors alone
        names = kwargs or {}
        launched = self._driver.launches()
        given = [*_tensors(args), *_tensors(names.values())]
        if any(each.device.type == "cpu" and each.dim() for each in given):
            return func(*args, **names)
        self._driver.begin_operator()
        try:
            output = func(*args, **names)
        finally:
            self._driver.end_operator()
        name = func.overloadpacket.__name__
        launches = self._driver.launches() - launched
        if func.overloadpacket in flop_registry or any(part in name for part in _OF_CUDNN):
            launches = max(launches, 1)
        made = list(_tensors((output,)))
        device = next((each.device for each in (*made, *given) if each.device.type != "cpu"), None)
        if launches and device is not None:
            seconds = self._seconds(func, args, names, output, given or made) + launches * self._rates.kernel_overhead_s
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds
            self._driver.work(device, seconds)
        return output

    def _seconds(
        self,
        func: OpOverload[..., Any],
        args: tuple[Any, ...],
        names: Mapping[str, Any],
        output: object,
        operands: list[torch.Tensor],
    ) -> float:
        name = func.overloadpacket.__name__
        if name in _RECURRENT:
            positional = zip((each.name for each in func._schema.arguments), args, strict=False)  # noqa: SLF001  # its only form
            given = {**dict(positional), **names}
            # The caller adds a launch for the operator, which is the first of the chain.
            chain_s = recurrent_seconds(given, partial(self._kernel_s, self._flop_per_s(name, operands)))
            return chain_s - self._rates.kernel_overhead_s
        counted: Callable[..., int] | None = flop_registry.get(func.overloadpacket)
        flop = 0 if counted is None else counted(*args, **names, out_val=output)
        arithmetic = self._flop_per_s(name, operands) if flop else 1.0
        return max(flop / arithmetic, _moved_bytes(func, args, names, output) / self._rates.dram_bytes_per_s)

    def _kernel_s(self, flop_per_s: float, flop: int, nbytes: int) -> float:
        return max(flop / flop_per_s, nbytes / self._rates.dram_bytes_per_s) + self._rates.kernel_overhead_s

    def _flop_per_s(self, name: str, operands: list[torch.Tensor]) -> float:
        convolves = name in _CONVOLUTIONS
        rates = self._rates.convolution_flop_per_s if convolves else self._rates.product_flop_per_s
        element_type = _TYPES.get(operands[0].dtype, "float32")
        if element_type == "float32" and _may_be_tf32(of_cudnn=convolves or name in _RECURRENT):
            element_type = "tf32"
        return rates.get(element_type, rates["float32"])


def _may_be_tf32(*, of_cudnn: bool) -> bool:
    settings = torch._C  # noqa: SLF001  # the public ones raise where their old and new names were mixed
    return bool(settings._get_cudnn_allow_tf32() if of_cudnn else settings._get_cublas_allow_tf32())  # noqa: SLF001


def _moved_bytes(func: OpOverload[..., Any], args: tuple[Any, ...], names: Mapping[str, Any], output: object) -> int:
    """Return the bytes of memory that an operator reads and writes, by its schema."""
    schema = func._schema  # noqa: SLF001  # its only form
    name = func.overloadpacket.__name__
    read = written = 0
    for number, argument in enumerate(schema.arguments):
        value = args[number] if number < len(args) else names.get(argument.name)
        nbytes = _nbytes(_tensors((value,)))
        changed = argument.alias_info is not None and argument.alias_info.is_write
        written += nbytes if changed else 0
        unread = argument.is_out or (number == 0 and name in (_SPARSE_READS | _OVERWRITES))
        read += 0 if unread else nbytes
    outputs = output if isinstance(output, tuple) else (output,)
    made = [value for value, made in zip(outputs, schema.returns, strict=False) if made.alias_info is None]
    fresh = _nbytes(_tensors(made))
    return read + written + (2 * fresh if name in _SPARSE_READS else fresh)


def _nbytes(tensors: Iterable[torch.Tensor]) -> int:
    """Return bytes of memory behind tensors; an expanded one reads each element once."""
    return sum(
        min(each.numel() * each.element_size(), each.untyped_storage().nbytes())
        for each in tensors
        if each.device.type != "cpu"
    )


def _tensors(values: Iterable[Any]) -> Iterable[torch.Tensor]:
    for each in values:
        if isinstance(each, torch.Tensor):
            yield each
        elif isinstance(each, list | tuple):
            yield from _tensors(each)
