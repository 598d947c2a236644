"""A captured step: one iteration of a PyTorch model as plain data, as in a file `NAME.step.json`.

It is all that `calibration.capture` writes and all that a replay reads: no user code, no PyTorch. Operations stand in
the order in which the framework issued them: forward, backward, update. Memory for the results of an operation is
allocated when it begins, and what is no longer referenced is freed when it has ended. Fields of the layer view are
not set.
"""

import re
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind, Data, Step, StepOperation, Storage
from vdnnsim.dnn.workload import Mode
from vdnnsim.units import Precision

VERSION = 1
"""Of the file; raised when a key is renamed, removed or means something else."""

_CUDA: Final = re.compile(r"cuda (\d{1,3})\.(\d{1,3})", re.ASCII)


class ProgramText(Data, frozen=True):
    """What was captured in expressions of Python, of which those are empty that its user alone knows.

    Attributes:
        imports: lines that the others need, beside `import torch`.
        model: makes the model.
        checkpointing: how blocks of it are checkpointed, in words of `capture`; empty if they are not.
        batch: makes what forward gets: one tensor, a tuple of arguments, or a dictionary of them by name.
        labels: makes the labels of the loss, where the batch has none.
        loss: of `model`, `batch` and `labels`.
        options: of a command that captures the same for several GPUs.
    """

    imports: tuple[str, ...] = ()
    model: str = ""
    checkpointing: str = ""
    batch: str = ""
    labels: str = ""
    loss: str = ""
    options: str = ""


class CapturedStep(Step, frozen=True, kw_only=True):
    """One iteration of a model on one GPU, alone or as one rank of several that do the same.

    Attributes:
        version: of the file.
        model: what was captured, as it was named.
        framework: `torch 2.13.0`, with the versions of what the model is from.
        device: `cuda 8.9`, by the rules of a compute capability, or `cpu`.
        sample: `image`, `sequence`, or `sample` where nothing is known of it.
        sample_elements: tokens of a sequence; else 1.
        optimizer: its name, as `adamw`; `none` without an update.
        notes: what was assumed, in sentences.
        in_backward: whether parameters are updated in backward, one by one; such operations are of backward.
        param_groups: groups of parameters that the optimizer updates one after the other.
        loss_chunks: slices of the tokens whose cross entropy is computed one after the other.
        compiled: whether operations and storages are those of torch.compile.
        parallel: the layout of a rank, as it was named, `fsdp=8`; empty for one GPU.
        ranks: how many there are in all; batch size and operations are those of one.
        pipeline: ranks of a pipeline; 1 without.
        position: of the rank in the pipeline.
        micro_batches: of the batch, where these overlap, as in a pipeline, or differ, as where the last alone reduces
            gradients; they are replayed as they were captured.
        lifetimes: whether it has lifetimes of storages; a profiler trace has none, and is good for times alone.
        largest_head: of the attention that PyTorch chose by the card, also where it is composed of other operations.
        program: what was captured in Python, for lines that are printed to copy.
    """

    version: int
    model: str
    framework: str
    device: str
    batch_size: int
    sample: str
    sample_elements: int
    mode: Mode
    precision: Precision
    optimizer: str
    parameters: int
    notes: tuple[str, ...] = ()
    in_backward: bool = False
    param_groups: int = 1
    loss_chunks: int = 1
    compiled: bool = False
    parallel: str = ""
    ranks: int = 1
    pipeline: int = 1
    position: int = 0
    micro_batches: int = 1
    lifetimes: bool = True
    largest_head: int = 0
    program: ProgramText = ProgramText()

    @property
    def part_size(self) -> int:
        """Samples of a micro-batch, where these are in its batch together."""
        return self.batch_size // self.micro_batches

    @cached_property
    def is_sharded(self) -> bool:
        """Whether it is a rank of a model that FSDP shards."""
        return any(each.name.startswith("fsdp.") for each in self.operations)

    @property
    def update(self) -> str:
        """How parameters are updated, as `adamw_fused in backward`; empty without an update."""
        if self.mode is Mode.INFERENCE or self.optimizer == "none":
            return ""
        where = " in backward" if self.in_backward else ""
        return self.optimizer + where + (f" in {self.param_groups} groups" if self.param_groups > 1 else "")

    @property
    def compute_capability(self) -> tuple[int, int] | None:
        """Compute capability of the CUDA device by whose rules it was captured; None for a CPU."""
        found = _CUDA.fullmatch(self.device)
        return (int(found[1]), int(found[2])) if found else None

    @property
    def saved_bytes(self) -> int:
        """Bytes of saved tensors, each storage once, without parameters, buffers and inputs, but with constants.

        What is freed before backward begins does not count. Of several micro-batches, the most that one saves.
        """
        most, saved = 0, set[int]()
        for position, operation in enumerate(self.operations):
            saved.update(operation.saves)
            following = self.operations[position + 1].phase if position + 1 < len(self.operations) else None
            if operation.phase is Phase.FORWARD and following is not Phase.FORWARD:
                storages = (self.storages[each] for each in saved)
                kept = (each for each in storages if each.constant or not each.given)
                most = max(most, sum(each.nbytes for each in kept if each.is_held_after(position)))
                saved.clear()
        return most

    @property
    def parameter_bytes(self) -> int:
        return sum(each.nbytes for each in self.storages if each.given and each.kind is BufferKind.WEIGHTS)

    @cached_property
    def live_bytes(self) -> tuple[int, ...]:
        """Live bytes while each operation runs."""
        change = [0] * (len(self.operations) + 1)
        for number, storage in enumerate(self.storages):
            begin = 0 if storage.given else self.first_use.get(number)
            if begin is not None:
                change[begin] += storage.nbytes
                if storage.freed_after is not None:
                    change[storage.freed_after + 1] -= storage.nbytes
        return tuple(accumulate(change[:-1]))

    @property
    def peak_live_bytes(self) -> int:
        """The most live bytes, temporary memory of operations included."""
        pairs = zip(self.live_bytes, self.operations, strict=True)
        return max((live + operation.temporary_bytes for live, operation in pairs), default=0)


def rounds_of(step: CapturedStep) -> int:
    """Return how many micro-batches an iteration has: how often it runs forward and backward before it updates.

    One where they overlap or differ.
    """
    return max(1, len(_starts(step)))


def last_round(step: CapturedStep) -> CapturedStep:
    """Return the last micro-batch and the update as an iteration of its own; all where they overlap or differ.

    All micro-batches but the first are alike: backward adds to existing weight gradients. So policies plan the last,
    and the plan is repeated for each (`vdnnsim.plans.lowering`). For the first this overestimates memory by the weight
    gradients that backward has yet to make.
    """
    starts = _starts(step)
    return step if len(starts) < 2 else _from(step, starts[-1])


def _starts(step: CapturedStep) -> list[int]:
    if step.micro_batches > 1:
        return [0]
    phases = [each.phase for each in step.operations]
    before = [None, *phases]
    return [at for at, phase in enumerate(phases) if phase is Phase.FORWARD and before[at] is not Phase.FORWARD]


def _from(step: CapturedStep, first: int) -> CapturedStep:
    """Return the operations from one on, with the storages that they find or make, renumbered."""

    def of(operations: tuple[StepOperation, ...], *, writes: bool = False) -> set[int]:
        operands = (operand for each in operations for operand in each.operands)
        return {step.tensors[each.memory].storage for each in operands if each.access.writes or not writes}

    def moved(number: int) -> Storage:
        each, is_found = step.storages[number], number in found
        # An input of another micro-batch is memory of the program, not a map.
        is_other = each.kind is BufferKind.FEATURE_MAP and is_found and number not in touched
        freed_after = None if each.freed_after is None else each.freed_after - first
        kind = BufferKind.LABELS if is_other else each.kind
        return replace(each, kind=kind, given=is_found, freed_after=freed_after)

    touched = of(step.operations[first:])
    given = {number for number, each in enumerate(step.storages) if each.given}
    found = given | of(step.operations[:first], writes=True)
    left = {number for number in found if step.storages[number].is_held_after(first - 1)}
    storages = {number: at for at, number in enumerate(sorted(touched | left))}
    kept = [number for number, each in enumerate(step.tensors) if each.storage in storages]
    tensors = {number: at for at, number in enumerate(kept)}
    return replace(
        step,
        storages=tuple(map(moved, storages)),
        tensors=tuple(replace(step.tensors[each], storage=storages[step.tensors[each].storage]) for each in kept),
        operations=tuple(
            replace(
                each,
                operands=tuple(replace(operand, memory=tensors[operand.memory]) for operand in each.operands),
                forward=None if each.forward is None else each.forward - first,
                saves=tuple(storages[saved] for saved in each.saves if saved in storages),
            )
            for each in step.operations[first:]
        ),
    )


def model_name(model: str) -> str:
    """Return the name of a model without library, owner and folder.

    One of a user's file is called as its class or function, or as the file where that is called `make` or `model`.
    """
    source, _, name = model.rpartition(":")
    if source.endswith(".py"):
        return Path(source).stem if name in {"make", "model"} else name
    path = Path(name)
    return path.parent.name if path.name == "config.json" else path.name
