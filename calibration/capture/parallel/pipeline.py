"""The stages of one rank of a pipeline, run by the schedules of torch.distributed.pipelining.

They are cut from a model, or a user's function has made them with their schedule.
"""

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
from torch.distributed.tensor import DTensor

from calibration.capture.checkpointing import checkpoint_blocks
from calibration.capture.parallel.shard import mesh_of, replicated, shard
from calibration.capture.parallel.stages import Autocast, Given, cut, join, order_of
from calibration.capture.parallel.tensor import split
from calibration.capture.storages import local_of
from calibration.capture.wrapped import Scheduled
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.layout import Layout
from vdnnsim.errors import CaptureError
from vdnnsim.units import Precision


class _ScheduledStage(PipelineStage):
    """Runs a stage on the micro-batches of an iteration, and calls `enter` with each phase at its begin.

    One that was cut from a model takes its arguments, those of a user are taken by the first alone.
    """

    batches: Sequence[Given] = ()
    enter: Callable[[Phase], object]
    autocast: Autocast = nullcontext
    is_cut = True

    def forward_one_chunk(
        self,
        fwd_chunk_id: int,
        args: tuple[Any, ...],  # noqa: ARG002 - those of the micro-batch
        kwargs: dict[str, Any] | None = None,  # noqa: ARG002
        save_forward_output: bool = True,  # noqa: FBT001, FBT002 - PyTorch's
    ) -> Any:  # noqa: ANN401 - as of the stage
        self.enter(Phase.FORWARD)
        batch = self.batches[fwd_chunk_id]
        given: Given = ((), {"given": batch}) if self.is_cut else batch if self.is_first else ((), {})
        with self.autocast():
            return super().forward_one_chunk(fwd_chunk_id, *given, save_forward_output)

    def backward_one_chunk(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - PyTorch's
        self.enter(Phase.BACKWARD)
        super().backward_one_chunk(*args, **kwargs)

    def backward_weight_one_chunk(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - PyTorch's
        self.enter(Phase.BACKWARD)
        super().backward_weight_one_chunk(*args, **kwargs)

    def _agreed(self, *_: Any, **__: Any) -> torch.Tensor:  # noqa: ANN401 - PyTorch's
        """Say that all stages know their shapes, which the other ranks are not there to confirm."""
        return torch.ones(1)

    _warmup_forward_vote = _warmup_backward_result = _agreed

    def _validate_fwd_outputs(self, outputs: tuple[torch.Tensor, ...]) -> None:
        """Accept results of any shape, as PyTorch 2.12 and later do: the last stage's are sent to no other."""


@dataclass
class Pipeline:
    """The stages of one rank and their schedule.

    Attributes:
        model: all stages.
        targets: stand for labels, which the loss has itself; None where this rank has not the last stage.
        ties: modules and names of parameters of this rank that another stage has, too.
        ends: the ranks of the first and the last stage, which sum the gradients of these; None without.
    """

    model: nn.Module
    stages: Sequence[_ScheduledStage]
    schedule: Any
    targets: torch.Tensor | None
    ties: Sequence[tuple[nn.Module, str]] = ()
    ends: distributed.ProcessGroup | None = None

    @property
    def buffers(self) -> Iterator[torch.Tensor]:
        """Memory for what is received, of each micro-batch, from the first iteration on."""
        for stage in self.stages:
            for infos in (*stage.args_recv_info.values(), *stage.grad_recv_info.values()):
                # What the first stage is given has none.
                found = (getattr(each, "buffer", None) for each in infos)
                yield from (each for each in found if isinstance(each, torch.Tensor))

    def run(self, batches: Sequence[Given], enter: Callable[[Phase], object]) -> list[torch.Tensor]:
        """Run forward and backward of all micro-batches; return the losses, which the last stage has.

        Embedding and head that share their weights have one each, whose gradients are then summed, as Megatron-LM does
        (megatron/core/distributed/finalize_model_grads.py).
        """
        for each in self.stages:
            each.batches, each.enter = batches, enter
        losses: list[torch.Tensor] = []
        self.schedule.step(target=self.targets, losses=losses, return_outputs=False)
        for module, name in self.ties:
            weight = getattr(module, name)
            gradient: Any = weight.grad
            if isinstance(weight, DTensor):
                # That of a split embedding is whole.
                weight.grad = gradient = gradient.redistribute(placements=weight.placements)
            distributed.all_reduce(local_of(gradient), group=self.ends)
        return losses


def pipelined(
    model: nn.Module,
    layout: Layout,
    precision: Precision,
    checkpointing: str,
    device_type: str,
    batches: Sequence[Given],
    autocast: Autocast,
    loss: Callable[[Any], torch.Tensor],
) -> Pipeline:
    """Return the stages of this rank, in a process that is one of its ranks.

    Args:
        model: all of it, which is cut into the stages, or those of a user's schedule.
        layout: with a pipeline.
        precision: with FSDP in the types of its own policy.
        checkpointing: of blocks.
        device_type: of the stages.
        batches: of an iteration.
        autocast: in which forward runs, unless FSDP has its own types.
        loss: of what the last stage returns.

    Raises:
        CaptureError: the model cannot be cut, or the schedule takes no such number of micro-batches.
    """
    if layout.is_given:
        return _given(model, layout, device_type, batches, autocast, loss)
    count = layout.pipeline * layout.interleave
    mesh = mesh_of(layout, device_type)
    assert mesh is not None, "the layout says how"
    if layout.tensor > 1:
        split(model, mesh["tensor"], shares_tokens=layout.shares_tokens)
    order = order_of(model, batches[0], autocast)
    if len(order.blocks) < count:
        raise CaptureError(
            f"--parallel: {layout.text}: {type(model).__name__} has {len(order.blocks)} equal blocks, expected at "
            f"least {count}, one for each stage"
        )
    narrow = precision.autocast if layout.is_sharded else None
    # Of shapes alone, for a stage of PyTorch 2.11 keeps it.
    activation = torch.empty_like(
        order.activation, dtype=getattr(torch, narrow.value) if narrow else None, device="meta", requires_grad=True
    )
    stages: list[Any] = []
    parts = [(model, order)]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Accessing the data pointer of FakeTensor")
        parts += [copy.deepcopy(parts[0]) for _ in range(layout.interleave - 1)]
    for part, index in zip(parts, range(layout.position, count, layout.pipeline), strict=True):
        stage, blocks = cut(*part, index, count)
        if checkpointing:
            checkpoint_blocks(stage, checkpointing, blocks)
        if layout.is_sharded:
            shard(stage, blocks, mesh, layout, precision)
        join(stage, blocks, index, count)
        module = replicated(stage, mesh, layout.reduction) if layout.is_replicated else stage
        is_last = index == count - 1
        stages.append(
            _ScheduledStage(
                module,
                index,
                count,
                torch.device(device_type),
                input_args=(activation,) if index else (),
                output_args=(activation,) * len(order.results) if is_last else (activation,),
                group=mesh["stages"].get_group(),
            )
        )
    chosen: dict[str, Any] = {"n_microbatches": len(batches), "loss_fn": lambda output, _: loss(output)}
    try:
        schedule = ScheduleInterleaved1F1B(stages, **chosen) if len(stages) > 1 else Schedule1F1B(stages[0], **chosen)
    except ValueError as failure:
        reason = " ".join(str(failure).split())
        raise CaptureError(f"accumulate: found {len(batches)} micro-batches in {layout.text}: {reason}") from failure
    modules = [each.submod for each in stages]
    whole = modules[0] if len(modules) == 1 else nn.ModuleList(modules)
    for each in stages:
        each.autocast = autocast
    targets = torch.empty(len(batches)) if stages[-1].is_last else None
    own = set(whole.modules())
    ties = [(module, name) for _, part in parts for module, name in part.ties if module in own]
    return Pipeline(whole, stages, schedule, targets, ties, _ends(layout) if order.ties else None)


def _given(
    model: nn.Module,
    layout: Layout,
    device_type: str,
    batches: Sequence[Given],
    autocast: Autocast,
    loss: Callable[[Any], torch.Tensor],
) -> Pipeline:
    """Return the stages of a user's schedule, which is run with the loss of the program.

    Raises:
        CaptureError: there is none, or its stages, micro-batches or shapes are others than the layout and loop say.
    """
    found = f"--parallel: {layout.text}: found"
    if not isinstance(model, Scheduled):
        raise CaptureError(
            f"{found} {type(model).__name__}, expected a function that returns a schedule, as "
            "Schedule1F1B(PipelineStage(...), ...)"
        )
    schedule = model.schedule
    stages: list[Any] = model.stages
    count = schedule._n_microbatches  # noqa: SLF001 - PyTorch has no public one
    if count != len(batches):
        raise CaptureError(f"accumulate: found {len(batches)} micro-batches, expected {count}, as the schedule has")
    for each in stages:
        knows_shapes = type(each) is PipelineStage and _knows_shapes(each)
        if each.group_size != layout.pipeline or each.stage_index_to_group_rank[each.stage_index] != layout.position:
            raise CaptureError(
                f"{found} stage {each.stage_index} in a group of {each.group_size} ranks, expected stages along the "
                f"first dimension of the mesh, of {layout.pipeline} ranks"
            )
        if not knows_shapes:
            raise CaptureError(
                f"{found} stage {each.stage_index} without shapes, expected PipelineStage(..., input_args=..., "
                "output_args=...): the other ranks are not there to tell them"
            )
        each.__class__ = _ScheduledStage
        each.device, each.autocast, each.is_cut = torch.device(device_type), autocast, False
    schedule._loss_fn, schedule._has_backward = lambda output, _: loss(output), True  # noqa: SLF001
    is_last = any(each.is_last for each in stages)
    return Pipeline(model, stages, schedule, torch.empty(count) if is_last else None)


def _knows_shapes(stage: Any) -> bool:  # noqa: ANN401 - what it has depends on the version
    """Return whether a user's stage was given the shapes of what it takes and returns."""
    if hasattr(stage, "_user_meta"):
        return bool(stage._user_meta.is_complete_for_forward())  # noqa: SLF001 - PyTorch has no public one
    return stage.inputs_meta is not None  # PyTorch 2.11


def _ends(layout: Layout) -> Any:  # noqa: ANN401 - PyTorch's annotation is the same
    """Return the group of a rank of the first stage and its like of the last; all ranks make it together."""
    last = layout.ranks - layout.ranks_of_stage
    pairs = [[each, last + each] for each in range(layout.ranks_of_stage)]
    return distributed.new_subgroups_by_enumeration(pairs)[0]  # type: ignore[no-untyped-call]
