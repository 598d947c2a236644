"""Layouts of a model over several GPUs: `ddp=8`, `zero1=8`, `fsdp=8`, `hsdp=2x4`, `tp=8`, `pp=4`, `ranks=8`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

from vdnnsim.errors import CaptureError
from vdnnsim.files.messages import not_one_of, quote
from vdnnsim.units import ElementType

PARALLEL: Final = "--parallel"
_DATA: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ddp": "DistributedDataParallel",
        "zero1": "DistributedDataParallel with ZeroRedundancyOptimizer",
        "zero2": "fully_shard with reshard_after_forward=False",
        "fsdp": "fully_shard",
        "hsdp": "fully_shard on a mesh of groups, each of which holds a copy of the model",
        "ranks": "what the function that makes the model does with it",
    }
)
"""How the data is parallel, and what of PyTorch does it."""
_TENSOR: Final = "tp"
_PIPELINE: Final = "pp"
_OF_DATA: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ep": "how many tokens an expert gets is known to its router alone (expert parallelism)",
        "cp": "PyTorch shares out the tokens of attention by a context around the loop (context parallelism)",
    }
)
"""What is not captured, and why."""
_INTERLEAVE: Final = "interleave"
_RESHARD: Final = "reshard=never"
_SEQUENCE: Final = "sp=never"
_OFFLOAD: Final = "offload=cpu"
_SYNC: Final = "sync=last"
_WRAP: Final = "wrap"
_REDUCE: Final = "reduce"
_PREFETCH: Final = "prefetch"
_FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {_TENSOR: "tensor", _PIPELINE: "pipeline", _INTERLEAVE: "interleave", "fsdp": "shards", "zero2": "shards"}
)
"""What a number of ranks, or of stages, is of a layout; of others `copies`."""
_WORDS: Final[Mapping[str, tuple[str, str, bool]]] = MappingProxyType(
    {
        "reshard": (_RESHARD, "reshards", False),
        "sp": (_SEQUENCE, "shares_tokens", False),
        "offload": (_OFFLOAD, "offloads", True),
        "sync": (_SYNC, "syncs", False),
    }
)
"""What is said in one word, its field, and the value of that then."""
_EXAMPLE: Final = "ddp=8, zero1=8, fsdp=8, hsdp=2x4, tp=8, pp=4, fsdp=4,tp=2 or ranks=8"
_COUNT: Final = re.compile(r"[1-9]\d{0,5}", re.ASCII)
_GROUPS: Final = re.compile(r"([1-9]\d{0,5})x([1-9]\d{0,5})", re.ASCII)
_PARAMETERS: Final = re.compile(r"([1-9]\d{0,11})([kMB]?)", re.ASCII)
_MANY: Final[Mapping[str, int]] = MappingProxyType({"": 1, "k": 10**3, "M": 10**6, "B": 10**9})
_REDUCED: Final = ("float32", "bfloat16", "float16", "fp32", "bf16", "fp16")

OFFLOADED: Final = (
    "The update on the host is as fast as its memory, which takes several threads a rank: torchrun gives it one unless "
    "OMP_NUM_THREADS is set."
)


@dataclass(frozen=True, slots=True)
class Layout:
    """How one model is spread over ranks: those of tensor parallelism are neighbours, then shards, copies, and stages.

    Attributes:
        text: as it was named.
        data: a key of `_DATA`; empty for tensor or pipeline parallelism alone.
        copies: groups of ranks that hold a copy each.
        shards: ranks over which FSDP shards a copy.
        tensor: ranks over which each layer is split.
        reshards: whether blocks free their weights after forward, and gather them again; a number if each keeps a share
            of them by which so many ranks do (`reshard_after_forward`).
        shares_tokens: whether ranks of tensor parallelism share the tokens between split layers (sequence parallelism).
        unit_parameters: that make a module a unit of FSDP, which it shards by itself; 0 where each block is one.
        reduction: the type in which gradients are reduced; None for that of the precision.
        prefetch: units of FSDP that are gathered ahead of the one that runs; 0 for as many as FSDP does by itself.
        pipeline: ranks of a pipeline, each of which has some of the blocks.
        offloads: whether shards, their gradients and optimizer states are in host memory (`CPUOffloadPolicy`).
        syncs: whether each micro-batch reduces gradients, and not the last alone (`no_sync` of DDP,
            `set_requires_gradient_sync` of FSDP).
        interleave: stages of each rank of the pipeline.
        position: in the pipeline, of the rank that is captured.
    """

    text: str
    data: str = ""
    copies: int = 1
    shards: int = 1
    tensor: int = 1
    reshards: bool | int = True
    shares_tokens: bool = True
    offloads: bool = False
    syncs: bool = True
    unit_parameters: int = 0
    reduction: ElementType | None = None
    prefetch: int = 0
    pipeline: int = 1
    interleave: int = 1
    position: int = 0

    @property
    def ranks(self) -> int:
        """All ranks."""
        return self.ranks_of_stage * self.pipeline

    @property
    def ranks_of_stage(self) -> int:
        """Ranks that run the same layers."""
        return self.copies * self.shards * self.tensor

    @property
    def rank(self) -> int:
        """The rank that is captured."""
        return self.position * self.ranks_of_stage

    @property
    def takes_all(self) -> bool:
        """Whether micro-batches overlap, or the last differs from the others."""
        return self.pipeline > 1 or not self.syncs

    @property
    def is_replicated(self) -> bool:
        """Whether DistributedDataParallel may be around the model."""
        return self.data in {"ddp", "zero1", "ranks"}

    @property
    def is_sharded(self) -> bool:
        """Whether FSDP shards it."""
        return self.data in {"fsdp", "hsdp", "zero2"}

    @property
    def is_given(self) -> bool:
        """Whether the user's code wraps the model."""
        return self.data == "ranks"

    def check_compiled(self, where: str = PARALLEL) -> None:
        """Refuse a layout of which torch.compile would not compile whole blocks.

        Raises:
            CaptureError: blocks are in stages, exchange data, or are in DistributedDataParallel, which cuts graphs.
        """
        if not self.is_sharded or self.tensor > 1 or self.pipeline > 1 or self.unit_parameters:
            raise CaptureError(
                f"{where}: found {self.text}, compiled, expected fsdp=N, zero2=N or hsdp=RxS alone, whose blocks "
                "torch.compile compiles, or eager execution"
            )


def parse_layout(text: str, where: str = PARALLEL) -> Layout:
    """Return the layout of a text, in which blanks may stand beside commas.

    Raises:
        CaptureError: a term is unknown, is given twice, or does not fit to others.
    """
    terms = [each.strip() for each in text.split(",")]
    text = ",".join(terms)
    layout, found = Layout(text), set[str]()
    for term in terms:
        name, _, value = term.partition("=")
        if name in _OF_DATA:
            raise CaptureError(
                f"{where}: found {quote(term)}; {_OF_DATA[name]}, expected ranks=N and a function that spreads its "
                "model itself, in equal shares"
            )
        if name == "zero3":
            raise CaptureError(f"{where}: found {quote(term)}, expected fsdp=N, which shards as ZeRO-3 does")
        if name not in (known := (*_DATA, _TENSOR, _PIPELINE, _INTERLEAVE, *_WORDS, _WRAP, _REDUCE, _PREFETCH)):
            raise CaptureError(f"{where}: {not_one_of(name, known, 'a layout')}; as {_EXAMPLE}")
        if name in found or (name in _DATA and layout.data):
            other = name if name in found else layout.data
            raise CaptureError(f"{where}: found {quote(text)}, expected one of {other} and {name}")
        found.add(name)
        layout = replace(layout, **_term(name, value, where))
    if layout.pipeline > 1 and layout.is_given:
        if layout.copies % layout.pipeline or layout.interleave > 1:
            raise CaptureError(
                f"{where}: found {quote(text)}, expected ranks=N,pp=M alone, with a multiple of M in N: M stages of "
                "equally many ranks, whose schedule says how they interleave"
            )
        layout = replace(layout, copies=layout.copies // layout.pipeline)
    _check(layout, where)
    return layout


def _check(layout: Layout, where: str) -> None:
    """Refuse terms that do not fit to others."""
    text = layout.text
    for is_found, word in (
        (layout.reshards is not True, f"reshard={layout.reshards or 'never'}"),
        (layout.offloads, _OFFLOAD),
        (layout.unit_parameters, _WRAP),
        (layout.prefetch, _PREFETCH),
    ):
        if is_found and not layout.is_sharded:
            raise CaptureError(f"{where}: found {word} in {quote(text)}, expected it beside fsdp=N or hsdp=RxS")
    gathers = [each for each in text.split(",") if each.startswith("reshard=") and each != _RESHARD]
    if layout.data == "zero2" and gathers:
        raise CaptureError(f"{where}: found {gathers[0]} in {quote(text)}, expected fsdp=N, for zero2 keeps weights")
    if layout.reshards is not True and layout.reshards and layout.shards % layout.reshards:
        raise CaptureError(
            f"{where}: found reshard={layout.reshards} in {quote(text)}, expected a divisor of {layout.shards}"
        )
    if layout.reduction and not layout.is_sharded:
        if not layout.data or layout.is_given:
            raise CaptureError(
                f"{where}: found {_REDUCE} in {quote(text)}, expected it beside ddp=N, zero1=N, fsdp=N, zero2=N or "
                "hsdp=RxS"
            )
        if layout.reduction is ElementType.FLOAT32:
            raise CaptureError(
                f"{where}: found {_REDUCE}=float32 in {quote(text)}, expected {_REDUCE}=bfloat16 or {_REDUCE}=float16, "
                "to which hooks of DistributedDataParallel compress gradients, or nothing of it"
            )
    if not layout.syncs and (layout.pipeline > 1 or layout.is_given or not layout.data):
        raise CaptureError(
            f"{where}: found {_SYNC} in {quote(text)}, expected it beside ddp=N, zero1=N, fsdp=N, zero2=N or hsdp=RxS; "
            "stages of a pipeline reduce once as it is"
        )
    if layout.unit_parameters and layout.pipeline > 1:
        raise CaptureError(
            f"{where}: found {_WRAP} in {quote(text)}, expected it without pp, whose stages are cut between blocks"
        )
    if not layout.shares_tokens and layout.tensor == 1:
        raise CaptureError(f"{where}: found {_SEQUENCE} in {quote(text)}, expected it beside tp=N")
    if layout.interleave > 1 and layout.pipeline == 1:
        raise CaptureError(f"{where}: found {_INTERLEAVE} in {quote(text)}, expected it beside pp=N")
    if layout.tensor > 1 and layout.is_given:
        raise CaptureError(f"{where}: found {quote(text)}, expected ranks=N alone, for the model says how")


def _term(name: str, value: str, where: str) -> dict[str, Any]:
    """Return the fields of a layout that a term says."""
    term = f"{name}={value}"
    if name in _WORDS:
        word, changed, meant = _WORDS[name]
        if name == "reshard" and _COUNT.fullmatch(value) and value != "1":
            return {changed: int(value)}
        if term != word:
            right = f"{word} or reshard=N" if name == "reshard" else word
            raise CaptureError(f"{where}: found {quote(term)}, expected {right}, or nothing of it")
        return {changed: meant}
    if name in (_WRAP, _REDUCE, _PREFETCH):
        return _of_units(name, value, where)
    if name == "hsdp":
        if not (groups := _GROUPS.fullmatch(value)) or "1" in groups.groups():
            raise CaptureError(f"{where}: found {quote(term)}, expected copies x shards, as hsdp=2x4")
        return {"data": name, "copies": int(groups[1]), "shards": int(groups[2])}
    if not _COUNT.fullmatch(value) or value == "1":
        raise CaptureError(f"{where}: found {quote(term)}, expected how many GPUs, from 2 on, as {name}=8")
    if name not in _DATA:
        return {_FIELDS[name]: int(value)}
    fields = {"data": name, _FIELDS.get(name, "copies"): int(value)}
    return fields | {"reshards": False} if name == "zero2" else fields


def _of_units(name: str, value: str, where: str) -> dict[str, Any]:
    """Return the fields of a term about the units of FSDP."""
    found = f"{where}: found {quote(f'{name}={value}')}, expected"
    match name:
        case "wrap":
            if not (size := _PARAMETERS.fullmatch(value)):
                raise CaptureError(f"{found} how many parameters, as wrap=100M")
            return {"unit_parameters": int(size[1]) * _MANY[size[2]]}
        case "reduce":
            if value not in _REDUCED:
                raise CaptureError(f"{found} one of {', '.join(_REDUCED)}")
            return {"reduction": ElementType(value)}
        case _:
            if not _COUNT.fullmatch(value):
                raise CaptureError(f"{found} how many blocks ahead, from 1 on, as prefetch=2")
            return {"prefetch": int(value)}
