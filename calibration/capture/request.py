"""The request of a capture, plain data for a child process; without PyTorch, which a cached capture does not need."""

import ast
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from vdnnsim.dnn.captured_step import model_name
from vdnnsim.dnn.layout import Layout, parse_layout
from vdnnsim.dnn.workload import Mode
from vdnnsim.errors import CaptureError
from vdnnsim.files.messages import file_name, not_one_of, options_text, quote
from vdnnsim.units import Precision

LIBRARIES: Final = ("torchvision", "timm", "transformers")
"""With models by name."""
DEFAULT_CAPABILITY: Final = (8, 9)
"""Compute capability of the card for which a step is captured by default."""
_EXAMPLE: Final = (
    "expected FILE.py:NAME, a name as resnet50 or meta-llama/Llama-3.1-8B, LIBRARY:NAME, or config.json of a model"
)
_NAME: Final = re.compile(r"[\w.+-]+(/[\w.+-]+)?", re.ASCII)
_LARGEST: Final = 10**9
_MOST_MAKERS: Final = 10


class LoopOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The loop around a model: how it is run and updated.

    Attributes:
        optimizer: a key of `OPTIMIZERS`.
        lora: rank of adapters around linear layers, with all else frozen; None for none.
        accumulate: micro-batches before a step of the optimizer.
        in_backward: whether each parameter is updated in backward, once its gradient is there, which is then freed.
        param_groups: groups of parameters that the optimizer updates one after the other.
        loss_chunks: slices of the tokens whose cross entropy is computed one after the other (`chunked_loss`).
        channels_last: whether tensors of four dimensions lie in memory with their channels last.
        holds_output: whether the script keeps what forward returned until the next forward returns, as `outputs =
            model(...)` in a loop does.
        checkpointing: of the model's blocks, `full`, `selective`, or of every so many, as `2`; empty for none.
    """

    mode: Mode = Mode.TRAINING
    precision: Precision = Precision.FLOAT32
    optimizer: str = "sgd"
    lora: int | None = None
    accumulate: int = 1
    in_backward: bool = False
    param_groups: int = 1
    loss_chunks: int = 1
    channels_last: bool = False
    holds_output: bool = False
    checkpointing: str = ""

    @property
    def loop(self) -> dict[str, Any]:
        """The options by name."""
        return {key: getattr(self, key) for key in LoopOptions.__struct_fields__}

    def check_loop(self, spelled: Callable[[str], str] = str) -> None:
        """Refuse numbers out of range, an unknown way of checkpointing, and what excludes updates in backward.

        Raises:
            CaptureError: the message has the name of an option as it is `spelled`.
        """
        for key in ("lora", "accumulate", "param_groups", "loss_chunks"):
            check_count(spelled(key), getattr(self, key))
        check_checkpointing(self.checkpointing)
        if not self.in_backward:
            return
        for is_found, what in (
            (self.accumulate > 1, f"{self.accumulate} micro-batches, whose gradients are updated with after the last"),
            (self.param_groups > 1, f"{self.param_groups} groups of parameters, which are updated at the end"),
            (self.precision is Precision.AMP_FLOAT16, "a gradient scaler, which looks at all gradients first"),
        ):
            if is_found:
                raise CaptureError(f"in_backward: found with {what}; expected one of the two")


def check_count(option: str, number: int | None) -> None:
    """Refuse a number that is stated and not above 0."""
    if number is not None and not 1 <= number <= _LARGEST:
        raise CaptureError(f"{option}: found {number}, expected an integer from 1 on")


class Request(LoopOptions, frozen=True, kw_only=True):
    """A model and how to capture it.

    Attributes:
        model: `my_model.py:make`; `torchvision:resnet50`, `timm:convnext_base`, `transformers:llama-7b`, or such a name
            alone where one library has it; a name of huggingface.co; or a `config.json`, or a folder with one.
        image: sizes of an image, channels first; None for the model's own, or none.
        tokens: of a sequence; None for the model's own, or none.
        inputs: `my_model.py:inputs`, a function of the batch size, and of the tokens where these are given; None for
            images or tokens.
        real: whether to run the model with real tensors, on the GPU where there is one, else on the CPU.
        pretended: a hardware profile, by name or path, on whose pretended card the model runs; else empty.
        compute_capability: of the CUDA device for which fake tensors dispatch.
        parallel: layout over several GPUs, as `fsdp=8`, one rank of which is captured; empty for one GPU.
        position: of the captured rank in a pipeline, from 0 on.
    """

    model: str
    batch_size: int
    image: tuple[int, ...] | None = None
    tokens: int | None = None
    inputs: str | None = None
    real: bool = False
    pretended: str = ""
    compiled: bool = False
    compute_capability: tuple[int, int] = DEFAULT_CAPABILITY
    parallel: str = ""
    position: int = 0

    @property
    def layout(self) -> Layout | None:
        """The layout over several GPUs; None for one.

        Raises:
            CaptureError: there is no such layout.
        """
        return replace(parse_layout(self.parallel), position=self.position) if self.parallel else None

    @property
    def has_pipeline(self) -> bool:
        """Whether it is a rank of a pipeline, whose `accumulate` micro-batches overlap."""
        return self.layout is not None and self.layout.pipeline > 1

    @property
    def captures_all(self) -> bool:
        """Whether its `accumulate` micro-batches are captured together, for they overlap or differ."""
        return self.layout is not None and self.layout.takes_all

    @property
    def runs(self) -> bool:
        return self.real or bool(self.pretended)

    @property
    def config(self) -> Path | None:
        """The `config.json` that describes the model; None where the model is named."""
        path = Path(self.model)
        if path.suffix == ".json":
            return path
        return path / "config.json" if (path / "config.json").is_file() else None

    @property
    def name(self) -> str:
        """The model in a captured step; a `config.json` without a folder has its type, as `config.json:llama`."""
        if self.config is None or self.config.name != "config.json" or self.config.parent.name not in {"", ".."}:
            return self.model
        return f"{self.config}:{_type_in(self.config) or self.config.resolve().parent.name or 'model'}"

    @property
    def options(self) -> str:
        """Options of a command that says so of the model, but those of its batch, its checkpoints and its ranks."""
        return options_text(
            {
                "image": self.image and "x".join(map(str, self.image)),
                "tokens": self.tokens,
                "inputs": self.inputs,
                "mode": None if self.mode is Mode.TRAINING else self.mode.value,
                "precision": self.precision.value,
                "optimizer": self.optimizer,
                "in_backward": self.in_backward,
                "param_groups": None if self.param_groups == 1 else self.param_groups,
                "loss_chunks": None if self.loss_chunks == 1 else self.loss_chunks,
                "lora": self.lora,
                "channels_last": self.channels_last,
            }
        )

    @property
    def short_name(self) -> str:
        return model_name(self.name)

    def check(self) -> None:
        """Check what needs no import.

        Raises:
            CaptureError: a number is out of range, a file is missing, or the library is unknown.
        """
        check_count("--batch", self.batch_size)
        check_count("--tokens", self.tokens)
        self.check_loop(lambda key: f"--{key.replace('_', '-')}")
        if self.layout is not None and self.runs:
            raise CaptureError("--parallel: found with real tensors, expected fake ones: the other ranks are not there")
        if self.layout is not None and self.compiled:
            self.layout.check_compiled()
        if self.real and self.pretended:
            raise CaptureError("--real and --pretend: found both, expected one that says where the model runs")
        if self.compiled and self.runs:
            raise CaptureError("--compile: found with real tensors, expected neither --real nor --pretend")
        if self.image is not None and (self.tokens is not None or self.inputs is not None):
            other = "--tokens" if self.inputs is None else "--inputs"
            raise CaptureError(f"--image and {other}: found both, expected one of them")
        if self.config is not None and not self.config.is_file():
            raise CaptureError(f"{file_name(self.config)}: there is no such file")
        source = self._source() if self.config is None else ""
        for words in (self.model, self.inputs):
            if words is not None and (words is self.inputs or source.endswith(".py")):
                split_words(words)

    def _source(self) -> str:
        """Return where a named model is from: a file, a library, or nothing for a name alone."""
        source, colon, name = self.model.rpartition(":")
        if self.model.endswith(".py"):
            makers = ", ".join(_makers_in(Path(self.model))[:_MOST_MAKERS])
            raise CaptureError(
                f"{quote(self.model)} does not say what makes the model, expected {self.model}:NAME"
                f"{f', where NAME is one of {makers}' if makers else ''}"
            )
        if Path(self.model).is_dir() and not _NAME.fullmatch(self.model):
            raise CaptureError(f"{file_name(Path(self.model))}: has no config.json, expected a folder with one")
        if not (name and (source or not colon) and (source or _NAME.fullmatch(name))):
            raise CaptureError(f"{quote(self.model)} is not a model; {_EXAMPLE}")
        if colon and not source.endswith(".py") and source not in LIBRARIES:
            raise CaptureError(
                f"{quote(self.model)}: {not_one_of(source, LIBRARIES, 'a library of models')}, or FILE.py"
            )
        return source


def _type_in(config: Path) -> str:
    """Return the type of model that a `config.json` states, as `llama`; empty if it states none."""
    try:
        stated = msgspec.json.decode(config.read_bytes(), type=_Config).model_type
    except (OSError, msgspec.DecodeError):
        return ""
    return stated if _NAME.fullmatch(stated) else ""


class _Config(msgspec.Struct):
    model_type: str = ""


def _makers_in(path: Path) -> list[str]:
    """Return the functions of a file that need no arguments, or else its classes, without importing it."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return []
    functions = [
        each.name
        for each in body
        if isinstance(each, ast.FunctionDef)
        and len(each.args.posonlyargs + each.args.args) == len(each.args.defaults)
        and None not in each.args.kw_defaults
    ]
    found = functions or [each.name for each in body if isinstance(each, ast.ClassDef)]
    return [each for each in found if not each.startswith("_")]


def split_words(words: str) -> tuple[Path, str]:
    """Return file and name of `FILE.py:NAME`.

    Raises:
        CaptureError: it has another form, or there is no such file.
    """
    text, _, name = words.rpartition(":")
    path = Path(text)
    if path.suffix != ".py" or not name:
        raise CaptureError(f"found {quote(words)}, expected FILE.py:NAME")
    if not path.is_file():
        folder = path.parent
        near = sorted(each.name for each in folder.glob("*.py")) if folder.is_dir() else []
        if near:
            raise CaptureError(not_one_of(path.name, near, f"a file in {file_name(folder.absolute())}"))
        raise CaptureError(f"{file_name(path)}: there is no such file")
    return path, name


def check_checkpointing(how: str) -> None:
    """Refuse a way of checkpointing that is unknown.

    Raises:
        CaptureError: it is another word than `full`, `selective` and a number.
    """
    if how and how not in {"full", "selective"} and not re.fullmatch(r"[1-9]\d{0,5}", how):
        raise CaptureError(f"--checkpointing: found {quote(how)}, expected full, selective, or every how many blocks")


_CHANNELS: Final = (1, 3, 4)
"""Of images; a last size among them, behind larger ones, is taken for channels that were put last."""


def parse_image(text: str) -> tuple[int, ...]:
    """Return the sizes of `3x224x224`, or raise CaptureError where it has another form."""
    if not re.fullmatch(r"[1-9]\d{0,5}(x[1-9]\d{0,5}){0,4}", text):
        raise CaptureError(f"--image: found {quote(text)}, expected sizes, channels first, as 3x224x224")
    first, *others = map(int, text.split("x"))
    if len(others) == 2 and others[-1] in _CHANNELS and min(first, others[0]) > max(_CHANNELS):
        raise CaptureError(f"--image: found {text}, expected channels first, as {others[-1]}x{first}x{others[0]}")
    return first, *others
