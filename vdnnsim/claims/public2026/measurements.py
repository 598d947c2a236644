"""Published measurements of step times, operators and peaks of memory: rows of the CSV tables beside this module.

Of timm's hundreds of networks these are those that vdnnsim builds, and others by the SHA-256 of their names: of times
those divisible by 16, of plain vision transformers by 4, of peaks those that are 1 modulo 32, for a context was fitted
to peaks of even ones. So no row was chosen by its result.

    step_times.csv      time of an iteration; under `timm-train-*` its batch is also the largest that fitted
    gpt2.csv            time of an update of GPT-2 and peak of the process memory
    operator_times.csv  time of all operators of a kind in an iteration, forward or backward
    peak_memory.csv     peak of the process memory, and FakeTensor's estimate
    estimators.csv      peak of the memory of a GPU, and what xMem, DNNMem and SchedTune said of it
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib import resources
from itertools import chain
from typing import Final, Literal

from vdnnsim.claims.claim import read_data
from vdnnsim.dnn.layers import LayerKind
from vdnnsim.dnn.workload import Mode
from vdnnsim.units import MIB, Precision

ONE_TIME_IN: Final = 16
ONE_PEAK_IN: Final = 32
"""One of so many networks of timm that vdnnsim does not build is here: of times, and of peaks of memory."""
PLAIN_TRANSFORMERS: Final = ("timm:deit", "timm:beit", "timm:flexivit")
ONE_TRANSFORMER_IN: Final = 4
"""Of so many networks whose names begin so, distilled ones aside, one more is here."""
BATCHES: Final = (512, 384, 256, 192, 128, 96, 64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2, 1)
"""Tried by timm's benchmark until one fits."""


@dataclass(frozen=True, slots=True)
class Series:
    """Measurements of one script.

    Attributes:
        source: repository at commit: path, or in words.
        optimizer: as of `vdnnsim capture`; `none` without an update.
        framework: the version of PyTorch, if known.
        searches_batch: whether batches are the largest of `BATCHES` that fitted.
        set_to_none: whether `zero_grad` frees gradients, the default from PyTorch 2.0 on.
        copies_images: whether measured times include copies of images from pageable memory.
        loads_all_kernels: whether CUDA loads all kernels into the context, as before 11.7.
        batches_ahead: images in the loader, in batches of float32, beside the one that trains. While timm's copies one
            to the GPU, as bytes first, one waits and one is still referenced (timm/data/loader.py): 2.25.
        cudnn_benchmark: whether cuDNN's search is replayed, for captured networks; that of PyTorch 1.12 differs.
        holds_output: whether the script keeps what the model returned until the next forward returns.
        counts_from: what of the memory in use was subtracted: nothing, CUDA's `context`, or all that the script had on
            the GPU before its first `batches`.
        library: begin of the library's name and version whose network it is, if another's takes other memory.
        compiled: whether torch.compile compiles the network.
        tokens: of a sequence; None where its rows say it, or for images.
        samples: of an update, to which micro-batches add up; 0 where each batch is one.
    """

    title: str
    source: str
    optimizer: str = "none"
    channels_last: bool = False
    framework: str = ""
    searches_batch: bool = False
    fused_attention: bool = True
    set_to_none: bool = True
    copies_images: bool = False
    loads_all_kernels: bool = False
    batches_ahead: float = 0.0
    cudnn_benchmark: bool = False
    holds_output: bool = False
    counts_from: Literal["", "context", "batches"] = ""
    library: str = ""
    compiled: bool = False
    tokens: int | None = None
    samples: int = 0


MEMORY: Final = "gpumemnet"
"""The series of `peak_memory.csv`."""
ESTIMATED: Final = ("xmem-convolutional", "xmem-transformer")
"""The series of `estimators.csv`."""
ESTIMATED_HARDWARE: Final = "rtx_3060"
MEMORY_HARDWARE: Final = "a100_40gb"
"""The source names no card; its largest peaks are below 40 GB."""
COMPILED: Final = "gpt2"
_GPT2: Final = "reports/measured/language_models.py:gpt2_124m"
SERIES: Final = read_data("public2026", "series.yaml", dict[str, Series])


@dataclass(frozen=True, slots=True)
class Setup:
    """A network and how it is run, at any batch.

    Attributes:
        network: as of `vdnnsim capture`, `timm:resnet50`.
        image: side of an image in pixels; None for the network's own.
        tokens: of a sequence; None for images.
        compute_capability: for which it is captured.
    """

    network: str
    image: int | None
    mode: Mode
    precision: Precision
    optimizer: str
    channels_last: bool
    tokens: int | None = None
    holds_output: bool = False
    compiled: bool = False
    compute_capability: tuple[int, int] = (8, 9)


@dataclass(frozen=True, slots=True)
class StepTime:
    """Time of an iteration.

    Attributes:
        measured: seconds.
        parameters: of the network, to three digits, if stated: a name may mean another network today.
    """

    series: str
    hardware: str
    setup: Setup
    batch_size: int
    measured: float
    parameters: float | None

    @property
    def next_batch(self) -> int | None:
        """The batch that did not fit; None if the largest of all did."""
        tried = BATCHES.index(self.batch_size)
        return BATCHES[tried - 1] if tried else None


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """Time of all operators of a kind in one iteration; `measured` is in seconds."""

    series: str
    hardware: str
    setup: Setup
    batch_size: int
    kind: LayerKind
    is_forward: bool
    measured: float

    @property
    def operators(self) -> str:
        return f"{self.kind.value} {'forward' if self.is_forward else 'backward'}"


@dataclass(frozen=True, slots=True)
class Estimates:
    """What other estimators said of a peak, in bytes, as published; None where they were not asked."""

    faketensor: float | None = None
    xmem: float | None = None
    dnnmem: float | None = None
    schedtune: float | None = None


@dataclass(frozen=True, slots=True)
class PeakMemory:
    """Peak of the memory of a GPU, in bytes, and what other estimators said of it."""

    setup: Setup
    batch_size: int
    measured: float
    estimates: Estimates
    series: str = MEMORY
    hardware: str = MEMORY_HARDWARE

    def error_of(self, estimator: str) -> float:
        return float(getattr(self.estimates, estimator)) / self.measured - 1


AnyRow = StepTime | OperatorTime | PeakMemory


def step_times() -> tuple[StepTime, ...]:
    compiled = tuple(
        StepTime(COMPILED, row["hardware"], setup, int(row["batch_size"]), float(row["milliseconds"]) / 1e3, None)
        for setup, row in _compiled_rows()
    )
    return compiled + tuple(
        StepTime(
            series=row["series"],
            hardware=row["hardware"],
            setup=_setup(row["series"], row["network"], int(row["image"]), Mode(row["mode"]), row["precision"]),
            batch_size=int(row["batch_size"]),
            measured=float(row["milliseconds"]) / 1e3,
            parameters=float(row["parameters_millions"]) * 1e6 if row["parameters_millions"] else None,
        )
        for row in _rows("step_times.csv")
    )


def operator_times() -> tuple[OperatorTime, ...]:
    return tuple(
        OperatorTime(
            series=row["series"],
            hardware=row["hardware"],
            setup=_setup(row["series"], row["network"], 224, Mode.TRAINING, row["precision"]),
            batch_size=int(row["batch_size"]),
            kind=LayerKind(row["kind"]),
            is_forward=row["direction"] == "forward",
            measured=float(row["microseconds"]) / 1e6,
        )
        for row in _rows("operator_times.csv")
    )


def peak_memory() -> tuple[PeakMemory, ...]:
    """Return the measured peaks of memory.

    As in GPUMemNet's script, images have the network's own size, and TF32 is allowed.
    """
    asked = tuple(
        PeakMemory(
            setup=_setup(MEMORY, row["network"], None, Mode.TRAINING, Precision.TF32.value),
            batch_size=int(row["batch_size"]),
            measured=float(row["mebibytes"]) * MIB,
            estimates=Estimates(faketensor=float(row["faketensor_mebibytes"]) * MIB),
        )
        for row in _rows("peak_memory.csv")
    )
    estimated = tuple(
        PeakMemory(
            setup=replace(
                _setup(row["series"], row["network"], _number(row["image"]), Mode.TRAINING, Precision.FLOAT32.value),
                optimizer=row["optimizer"],
                tokens=_number(row["tokens"]),
            ),
            batch_size=int(row["batch_size"]),
            measured=float(row["bytes"]),
            estimates=Estimates(
                xmem=float(row["xmem_bytes"]),
                dnnmem=float(row["dnnmem_bytes"]),
                schedtune=float(row["schedtune_bytes"]),
            ),
            series=row["series"],
            hardware=ESTIMATED_HARDWARE,
        )
        for row in _rows("estimators.csv")
    )
    compiled = tuple(
        PeakMemory(setup, int(row["batch_size"]), float(row["mebibytes"]) * MIB, Estimates(), COMPILED, row["hardware"])
        for setup, row in _compiled_rows()
    )
    return asked + estimated + compiled


def _compiled_rows() -> Iterator[tuple[Setup, dict[str, str]]]:
    setup = _setup(COMPILED, _GPT2, None, Mode.TRAINING, Precision.AMP_BFLOAT16.value)
    for row in _rows("gpt2.csv"):
        major, _, minor = row["compute_capability"].partition(".")
        yield replace(setup, compute_capability=(int(major), int(minor))), row


def _setup(series: str, network: str, image: int | None, mode: Mode, precision: str) -> Setup:
    script = SERIES[series]
    how = script.optimizer, script.channels_last, script.tokens, script.holds_output, script.compiled
    return Setup(network, image, mode, Precision(precision), *how)


def _number(text: str) -> int | None:
    return int(text) if text else None


def _rows(name: str) -> Iterator[dict[str, str]]:
    return csv.DictReader(resources.files(__package__).joinpath(name).read_text(encoding="utf-8").splitlines())


def number_of(network: str) -> int:
    """Return the SHA-256 of a network's name, without its library."""
    return int(sha256(network.partition(":")[2].encode()).hexdigest(), 16)


def asked_batches(*rows: Iterable[AnyRow]) -> dict[Setup, tuple[int, ...]]:
    """Return the batches of each network in rows, with the next larger one of largest batches."""
    asked: dict[Setup, dict[int, None]] = {}
    for row in chain(*rows):
        batches = asked.setdefault(row.setup, {})
        batches[row.batch_size] = None
        if isinstance(row, StepTime) and SERIES[row.series].searches_batch and row.next_batch:
            batches[row.next_batch] = None
    return {setup: tuple(sorted(batches)) for setup, batches in asked.items()}
