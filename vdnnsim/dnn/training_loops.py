"""Training loops that compute the same with less memory, or nearly the same: their words, and which may help a step.

PyTorch's optimizers have up to three implementations (torch.optim, "How to use an optimizer"): of lists of tensors,
`foreach`, the default on CUDA, which holds temporaries of the size of all parameters; a loop over parameters,
`foreach=False`; and `fused`, one kernel without temporaries.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import accumulate
from math import prod
from types import MappingProxyType
from typing import Any, Final

import msgspec

from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import ELEMENT_BYTES, BufferKind, Data, Tensor
from vdnnsim.dnn.workload import Mode
from vdnnsim.errors import CaptureError
from vdnnsim.files.messages import not_one_of, options_text
from vdnnsim.units import Precision

LISTS: Final = tuple(f"torch.nn.modules.container.{name}" for name in ("Sequential", "ModuleList", "ModuleDict"))
"""Classes of modules that hold others and compute nothing of their own."""
_PLAIN: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = MappingProxyType(
    {
        "sgd": ("SGD", {"lr": 1e-3}),
        "momentum": ("SGD", {"lr": 1e-3, "momentum": 0.9}),
        "momentum_decay": ("SGD", {"lr": 1e-3, "momentum": 0.9, "weight_decay": 1e-4}),
        "adam": ("Adam", {}),
        "adamw": ("AdamW", {}),
        "adagrad": ("Adagrad", {}),
        "adamax": ("Adamax", {}),
        "nadam": ("NAdam", {}),
        "radam": ("RAdam", {}),
        "rmsprop": ("RMSprop", {}),
    }
)
_WITH_FUSED: Final = ("sgd", "momentum", "momentum_decay", "adam", "adamw")
"""That have a fused kernel on CUDA."""
_NARROW: Final = MappingProxyType({"adam": "adam8bit", "adamw": "adamw8bit"})
"""Of bitsandbytes."""
OPTIMIZERS: Final[Mapping[str, tuple[str, Mapping[str, Any]]]] = MappingProxyType(
    {
        "none": ("", {}),
        **_PLAIN,
        **{f"{each}_fused": (_PLAIN[each][0], {**_PLAIN[each][1], "fused": True}) for each in _WITH_FUSED},
        **{f"{each}_for_loop": (name, {**options, "foreach": False}) for each, (name, options) in _PLAIN.items()},
        "adam8bit": ("Adam8bit", {}),
        "adamw8bit": ("AdamW8bit", {}),
    }
)
"""By name the class of `torch.optim`, or of bitsandbytes, and its arguments."""


def optimizer_named(optimizer: object) -> str:
    """Return a key of `OPTIMIZERS` by itself or by a class of `torch.optim`, or raise CaptureError."""
    name = optimizer.__name__.lower() if isinstance(optimizer, type) else optimizer
    if not isinstance(name, str):
        found = type(optimizer).__name__
        is_fused = getattr(optimizer, "defaults", {}).get("fused")
        meant = next(
            (each for each in (f"{found.lower()}_fused" * bool(is_fused), found.lower()) if each in OPTIMIZERS), ""
        )
        expected = f"its name, {meant!r}" if meant else "a name, as 'adamw', or a class of torch.optim"
        raise CaptureError(f"optimizer: found an object of {found}, expected {expected}")
    if name not in OPTIMIZERS:
        raise CaptureError(f"optimizer: {not_one_of(name, OPTIMIZERS, 'an optimizer')}")
    return name


_AMPERE: Final = (8, 0)
LARGE: Final = 0.05
"""Share of the memory from which something is worth to be made smaller."""
_WRAPPER: Final = ".CheckpointWrapper"
"""PyTorch's, around a block of a model that came with checkpoints."""
_TIGHT: Final = 0.8
"""Share of the memory above which parameters, gradients and states of 8 bits leave too little for the rest."""
_GROUPS: Final = 8
_SLICE_BYTES: Final = 2**28
"""Of the logits of a slice, about, so that its kernels are large and its memory is small."""
_FEWEST, _MOST = 4, 64
_LIVE: Final = 2
"""Tensors of the size of the logits at the peak of a loss, at the least: logarithms and their gradient."""


class Loop(Data, frozen=True):
    """What differs from a captured loop: words of a capture's request; None for what stays.

    Attributes:
        optimizer: a key of `OPTIMIZERS`.
        precision: a value of `Precision`.
        checkpointing: `full`, of each block.
    """

    optimizer: str | None = None
    in_backward: bool | None = None
    param_groups: int | None = None
    loss_chunks: int | None = None
    precision: str | None = None
    checkpointing: str | None = None

    @property
    def changes(self) -> dict[str, Any]:
        return {key: value for key, value in msgspec.structs.asdict(self).items() if value is not None}

    @property
    def options(self) -> str:
        return options_text(self.changes)

    @property
    def is_exact(self) -> bool:
        """Whether the loop computes the same, but for the order of sums."""
        return not (self.precision or "8bit" in (self.optimizer or ""))

    @property
    def sums_alike(self) -> bool:
        """Whether sums are in the same order, so that an exact loop has the same bits."""
        return not (self.optimizer or self.loss_chunks)

    @property
    def is_of_update(self) -> bool:
        """Whether the update alone differs, and computes the same."""
        return self.is_exact and self.changes.keys() <= {"optimizer", "param_groups"}

    def __str__(self) -> str:
        """Return it in words, as `adamw_fused in backward, cross entropy in 8 slices`; empty if nothing differs."""
        update = self.optimizer or ("updates" if self.in_backward or self.param_groups else "")
        where = " in backward" if self.in_backward else ""
        groups = f" in {self.param_groups} groups" if self.param_groups else ""
        parts = (
            update + where + groups,
            f"cross entropy in {self.loss_chunks} slices" if self.loss_chunks else "",
            self.precision or "",
            "each block checkpointed" if self.checkpointing else "",
        )
        return ", ".join(filter(None, parts))


def lighter_loops(step: CapturedStep, room_bytes: int, rounds: int) -> tuple[Loop, ...]:
    """Return loops that may need less memory than that of a step, from cheap to dear, for so many micro-batches.

    One is there only where it would save a share of the room that counts, and the weights have room.
    """
    if step.mode is Mode.INFERENCE:
        return ()
    name, _, _ = step.optimizer.partition("_")
    fused = Loop(optimizer=f"{step.optimizer}_fused") if step.optimizer in _WITH_FUSED else Loop()
    is_of_lists = any("._foreach" in each.name for each in step.operations) and step.param_groups == 1
    first = Loop()
    if temporary_bytes(step) > LARGE * room_bytes:
        first = fused if fused.changes or not is_of_lists else Loop(param_groups=_GROUPS)
    states = sum(each.nbytes for each in step.storages if each.given and each.kind is BufferKind.OPTIMIZER_STATE)
    gradients = sum(each.nbytes for each in step.storages if each.kind is BufferKind.WEIGHT_GRADIENT)
    is_scaled = step.precision is Precision.AMP_FLOAT16
    has_update = step.optimizer != "none" and not step.in_backward and not is_scaled and rounds == 1
    may_be_in_backward = has_update and gradients > LARGE * room_bytes
    chunks = slices_of(step, room_bytes) if step.loss_chunks == 1 else None
    found = [first, msgspec.structs.replace(first, loss_chunks=chunks)]
    if may_be_in_backward:
        found.append(msgspec.structs.replace(fused, loss_chunks=chunks, in_backward=True))
    if name in _NARROW and states > LARGE * room_bytes:
        found.append(Loop(optimizer=_NARROW[name], loss_chunks=chunks))
        # States are a quarter of what they were.
        if may_be_in_backward and step.parameter_bytes + gradients + states / 4 > _TIGHT * room_bytes:
            found.append(msgspec.structs.replace(found[-1], in_backward=True))
    if step.precision.element_type.nbytes > 2 and not step.precision.autocast:
        mixed = _autocast_of(step)
        # A gradient scaler looks at all gradients before the update.
        in_backward = None if mixed is Precision.AMP_FLOAT16 else found[-1].in_backward
        last = msgspec.structs.replace(found[-1], in_backward=in_backward)
        found += [msgspec.structs.replace(each, precision=mixed.value) for each in (first, last)]
    if step.precision is Precision.AMP_BFLOAT16 and _autocast_of(step) is Precision.AMP_FLOAT16:
        found.append(msgspec.structs.replace(first, precision=Precision.AMP_FLOAT16.value))
    is_checkpointed = step.program.checkpointing or any(each.kind.endswith(_WRAPPER) for each in step.modules)
    if checkpointed_classes(step) and not is_checkpointed:
        found.append(msgspec.structs.replace(first, loss_chunks=chunks, checkpointing="full"))
        is_frozen = step.parameter_bytes - gradients > LARGE * room_bytes
        if is_frozen and step.precision is Precision.AMP_BFLOAT16 and step.sample == "sequence":
            found.append(msgspec.structs.replace(found[-1], precision=Precision.BFLOAT16.value))
    if step.parameter_bytes > room_bytes:
        found = [each for each in found if each.precision == Precision.BFLOAT16.value]
    return tuple(dict.fromkeys(each for each in found if each.changes))


def _autocast_of(step: CapturedStep) -> Precision:
    """Return the autocast that the card of a step has tensor cores for, if any: bfloat16 from Ampere on."""
    capability = step.compute_capability
    return Precision.AMP_FLOAT16 if capability is not None and capability < _AMPERE else Precision.AMP_BFLOAT16


def checkpointed_classes(step: CapturedStep) -> tuple[str, ...]:
    """Return the classes whose modules `--checkpointing full` recomputes (`calibration.capture.blocks`); maybe none."""
    kinds = {each.path: each.kind for each in step.modules}
    holders = {path.rpartition(".")[0] for path in kinds if path}
    counted = Counter(kind for path, kind in kinds.items() if path and path in holders and kind not in LISTS)
    repeated = {kind for kind, count in counted.items() if count > 1}
    name, beside = class_of_blocks(step), Counter((path.rpartition(".")[0], kind) for path, kind in kinds.items())
    blocks = {
        path
        for path, kind in kinds.items()
        for holder in (path.rpartition(".")[0],)
        if kind == name and kinds.get(holder) in LISTS and beside[holder, kind] > 1
    }
    whole, in_blocks, parts = 0, 0, Counter[str]()
    for storage in step.storages:
        if storage.kind is BufferKind.WEIGHTS:
            above = list(accumulate(storage.name.split("."), "{}.{}".format))[:-1]
            whole += storage.nbytes
            in_blocks += storage.nbytes if blocks.intersection(above) else 0
            parts[next((kinds[each] for each in above if kinds.get(each) in repeated), "")] += storage.nbytes
    del parts[""]
    has_blocks = 2 * in_blocks >= whole or in_blocks >= parts.total()
    return (name,) * bool(name) if has_blocks else tuple(parts)


def class_of_blocks(step: CapturedStep) -> str:
    """Return the class with the most parameters that repeats in a list of modules and has parts; empty without one.

    These are the blocks of `calibration.capture.blocks`, which are single layers only without such.
    """
    kinds = {each.path: each.kind for each in step.modules}
    parents = {path.rpartition(".")[0] for path in kinds if path}
    lists = Counter((path.rpartition(".")[0], kinds[path]) for path in parents if path)
    blocks = [kind for (holder, kind), count in lists.items() if count > 1 and kinds.get(holder) in LISTS]
    repeated = set(blocks) - set(LISTS)
    nbytes = Counter[str]()
    for storage in step.storages:
        if storage.kind is BufferKind.WEIGHTS:
            parts = storage.name.split(".")
            above = (kinds.get(".".join(parts[:count]), "") for count in range(1, len(parts)))
            nbytes[next((each for each in above if each in repeated), "")] += storage.nbytes
    del nbytes[""]
    return max(nbytes, key=lambda kind: nbytes[kind], default="")


def temporary_bytes(step: CapturedStep) -> int:
    """Return the bytes by which an update at the end grows while it runs; some of its operations make nothing."""
    pairs = zip(step.live_bytes, step.operations, strict=True)
    live = [held for held, each in pairs if each.phase is Phase.UPDATE]
    return max(live) - min(live) if live else 0


def fits_but_for_update(step: CapturedStep, room_bytes: float) -> bool:
    """Whether forward and backward have room, so that an update without temporaries is all that is needed."""
    pairs = zip(step.live_bytes, step.operations, strict=True)
    return max((held for held, each in pairs if each.phase is not Phase.UPDATE), default=0) <= room_bytes


def kept_bytes(step: CapturedStep) -> int:
    """Return the bytes that are live as backward begins in each loop that keeps activations, at the least.

    However it updates parameters, and cuts its loss: of parameters, and of what forward saves beside logits.
    """
    return step.parameter_bytes + max(0, step.saved_bytes - _LIVE * logits_bytes(step))


def slices_of(step: CapturedStep, room_bytes: int, parts: int = 1) -> int | None:
    """Return into how many slices of its tokens a loss may be cut; None where it takes little, or is not known.

    Of so many parts of the batch, the loss of one.
    """
    nbytes = logits_bytes(step) // parts
    if _LIVE * nbytes <= LARGE * room_bytes:
        return None
    slices = _FEWEST
    while slices < _MOST and nbytes > slices * _SLICE_BYTES:
        slices *= 2
    return slices


def logits_bytes(step: CapturedStep) -> int:
    """Return the bytes of the logarithms of a cross entropy, one for each token and class; 0 without one.

    Under autocast `cross_entropy` keeps them narrow, and a copy in float32 that gives the loss, which counts.
    """
    read = (
        step.tensors[each.memory]
        for operation in step.operations
        if operation.phase is Phase.FORWARD and "nll_loss" in operation.name
        for each in operation.operands
        if each.access.reads
    )
    sizes = {each.shape: ELEMENT_BYTES[each.element_type] for each in _logarithms(step)}
    wide = {each.shape: ELEMENT_BYTES[each.element_type] for each in read if each.shape in sizes}
    return max((prod(shape) * width for shape, width in (sizes | wide).items()), default=0)


def logits_elements(step: CapturedStep) -> int:
    """Return the tokens times the classes of a cross entropy; 0 without one."""
    return max((prod(each.shape) for each in _logarithms(step)), default=0)


def _logarithms(step: CapturedStep) -> Iterator[Tensor]:
    for operation in step.operations:
        if operation.phase is Phase.FORWARD and "_log_softmax" in operation.name:
            yield from (step.tensors[each.memory] for each in operation.operands if each.access.writes)
