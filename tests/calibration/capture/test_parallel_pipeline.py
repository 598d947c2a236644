"""Stages of a pipeline, captured as one rank of several."""

from collections import Counter
from functools import partial
from itertools import groupby
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

import vdnnsim
from tests.calibration.capture.ranks import (
    BLOCK,
    CLASSES,
    SAMPLES,
    WIDTH,
    B,
    Block,
    F,
    Four,
    Net,
    Planned,
    captured,
    collectives,
)
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.collective import Collective, CollectiveKind
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.layout import parse_layout
from vdnnsim.dnn.step import BufferKind
from vdnnsim.dnn.workload import Mode
from vdnnsim.errors import CaptureError
from vdnnsim.units import Precision


def stage(layout: str, position: int, **others: object) -> CapturedStep:
    return captured(layout, position=position, accumulate=4, **others)


def test_stages_run_forward_and_backward_in_the_order_of_1f1b() -> None:
    """Each has one of two blocks, and the last the head. Activations of 6 x 16 numbers are sent.

    The first runs two forwards ahead; it sends the second result as it asks for the first gradient, and so on. The last
    runs backward of each micro-batch at once.
    """
    first, last = stage("pp=2", 0), stage("pp=2", 1)

    assert [(each.parameters, each.batch_size, each.position) for each in (first, last)] == [
        (2128, 24, 0),
        (2128 + 136, 24, 1),
    ]
    send, receive = "send", "receive"
    assert [each.kind.value for each in collectives(first)] == [send, *[send, receive] * 3, receive]
    assert [each.kind.value for each in collectives(last)] == [receive, *[send, receive] * 3, send]
    assert {(each.nbytes, each.ranks, each.stride) for each in collectives(first)} == {(6 * 16 * 4, 2, 1)}
    assert {(each.nbytes, each.ranks, each.stride) for each in collectives(last)} == {(6 * 16 * 4, 2, -1)}
    ran = [(phase, len(list(same))) for phase, same in groupby(each.phase for each in last.operations)]
    assert [phase for phase, _ in ran] == [F, B] * 4 + [Phase.UPDATE]


def test_a_first_stage_keeps_what_is_saved_of_two_micro_batches() -> None:
    """Of each the wide activation of 6 x 64 numbers, before and behind the function between, and none of four."""
    first = stage("pp=2", 0)

    wide = [each for each in first.storages if each.nbytes == 6 * 64 * 4 and each.kind is BufferKind.FEATURE_MAP]
    starts = Counter(next(iter(each.name.split())) for each in wide)
    assert starts["relu"] == 4
    of_relu = [number for number, each in enumerate(first.storages) if each in wide and each.name.startswith("relu")]
    ends = [first.storages[number].freed_after or 0 for number in of_relu]
    begins = [first.first_use[number] for number in of_relu]
    live = [sum(begin <= at <= end for begin, end in zip(begins, ends, strict=True)) for at in range(max(ends))]
    assert max(live) == 2


def test_interleaved_stages_of_a_rank_exchange_each_activation() -> None:
    """Of four stages the first rank has the first and the third, between which the second rank has one."""
    first = stage("pp=2,interleave=2", 0, make_model=Four)

    assert first.parameters == 2 * 2128
    assert Counter(each.kind.value for each in collectives(first)) == {"send": 3 * 4, "receive": 3 * 4}


def test_shards_of_a_stage_are_reduced_once() -> None:
    """Behind the last micro-batch; the ranks of a stage are neighbours, those of the other two apart."""
    step = stage("pp=2,fsdp=2", 1, precision=Precision.AMP_BFLOAT16, checkpointing="full")

    found = Counter((each.kind.value, each.stride) for each in collectives(step))
    assert found["reduce_scatter", 1] == 2
    assert (found["receive", -2], found["send", -2]) == (4, 4)
    assert {each.nbytes for each in collectives(step) if each.kind is CollectiveKind.SEND} == {6 * 16 * 2}


@pytest.mark.parametrize("layout", ["pp=2,ddp=2", "pp=2,zero1=2"])
def test_copies_of_a_stage_sum_their_gradients_once(layout: str) -> None:
    """Behind the last micro-batch, in one bucket of a block; with ZeRO-1 each parameter is then sent by its rank."""
    step = stage(layout, 0)

    found = [each for each in collectives(step) if not each.is_point_to_point]
    assert found[0] == Collective(CollectiveKind.ALL_REDUCE, BLOCK, "float32", ranks=2)
    sent = [each.nbytes for each in found[1:] if each.kind is CollectiveKind.BROADCAST]
    assert sum(sent) == (BLOCK if "zero1" in layout else 0)
    assert len(found) == 1 + len(sent)


def test_stages_of_split_layers_send_the_tokens_of_a_rank() -> None:
    """Half of 65,536 B; later stages sum no embedding, but what the loss sums over classes."""
    first, last = stage("pp=2,tp=2", 0), stage("pp=2,tp=2", 1)

    for step, stride in ((first, 2), (last, -2)):
        sent = {(each.nbytes, each.stride) for each in collectives(step) if each.is_point_to_point}
        assert sent == {(32768, stride)}
    summed = [
        Counter(each.nbytes for each in collectives(step, F) if each.kind is CollectiveKind.ALL_REDUCE)
        for step in (first, last)
    ]
    assert summed == [{65536: 4}, {4096: 3 * 4}]


@pytest.mark.parametrize(
    ("layout", "nbytes", "stride"), [("pp=3", 512, 2), ("pp=2,fsdp=2", 256, 2), ("pp=2,tp=2,sp=never", 256, 2)]
)
def test_first_and_last_stage_sum_the_gradient_of_a_weight_that_both_have(
    layout: str, nbytes: int, stride: int
) -> None:
    """8 x 16 numbers in float32, of which a shard, or a rank of split layers, has half; last of the collectives."""

    def model() -> nn.Module:
        made = Planned()
        made.blocks.append(Block())
        return made

    stages = parse_layout(layout).pipeline
    for position in range(stages):
        step = stage(
            layout, position, make_model=model, make_inputs=lambda: ((torch.zeros(2, 4, dtype=torch.int64),), {})
        )
        has_both = position in (0, stages - 1)
        of_both = Collective(CollectiveKind.ALL_REDUCE, nbytes, "float32", 2, stride)
        assert (collectives(step, B)[-1] == of_both) is has_both


class Half(nn.Module):
    """A block of `Net`, with the head behind the last."""

    def __init__(self, *, is_last: bool) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block()])
        self.head = nn.Linear(WIDTH, CLASSES) if is_last else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        head: torch.Tensor = self.head(x)
        return head


def scheduled(
    *, names: tuple[str, str] = ("pp", "dp"), knows_shapes: bool = True, has_gradients: bool = True
) -> object:
    """Return the schedule of a stage in a process of two times two ranks, as a user's script makes it."""
    mesh = init_device_mesh("cuda", (2, 2), mesh_dim_names=names)
    position = mesh["pp"].get_local_rank()
    part = Half(is_last=position == 1)
    for each in (part.blocks[0], part):
        fully_shard(each, mesh=mesh["dp"])
    given, made = (torch.empty(SAMPLES, width, device="meta") for width in (WIDTH, CLASSES if position else WIDTH))
    shapes: dict[str, Any] = (
        {"input_args": given.requires_grad_(has_gradients), "output_args": made.requires_grad_(has_gradients)}
        if knows_shapes
        else {}
    )
    stage = PipelineStage(part, position, 2, torch.device("cuda"), group=mesh["pp"].get_group(), **shapes)
    return Schedule1F1B(stage, n_microbatches=4, loss_fn=nn.functional.cross_entropy)


def of_stages(make: object, layout: str, **others: Any) -> CapturedStep:  # noqa: ANN401 - words of a capture
    words: dict[str, Any] = {"loss": lambda y: y.float().sum(), "accumulate": 4, "parallel": layout}
    return vdnnsim.capture(make, torch.randn(SAMPLES, WIDTH), **(words | others))


@pytest.mark.parametrize("position", [0, 1])
def test_a_schedule_of_the_user_is_captured_as_the_same_stages(position: int) -> None:
    found = of_stages(scheduled, "ranks=4,pp=2", position=position)
    expected = of_stages(Net, "pp=2,fsdp=2", position=position)

    assert (found.ranks, found.pipeline, found.position) == (4, 2, position)
    assert collectives(found) == collectives(expected)
    assert found.peak_live_bytes == expected.peak_live_bytes


@pytest.mark.parametrize(
    ("make", "layout", "asked", "message"),
    [
        (Net, "ranks=4,pp=2", {}, "found Net, expected a function that returns a schedule"),
        (scheduled, "ranks=4,pp=2", {"accumulate": 2}, "found 2 micro-batches, expected 4"),
        (scheduled, "ranks=4", {}, "found a schedule of stages, expected ranks=4,pp=M"),
        (scheduled, "fsdp=4", {}, "found a schedule of pipeline stages, expected parallel ranks=N,pp=M"),
        (partial(scheduled, names=("dp", "pp")), "ranks=4,pp=2", {"position": 1}, "expected stages along the first"),
        (partial(scheduled, knows_shapes=False), "ranks=4,pp=2", {"position": 1}, "stage 1 without shapes, expected"),
        (
            partial(scheduled, has_gradients=False),
            "ranks=4,pp=2",
            {},
            "input_args and output_args that require gradients",
        ),
    ],
)
def test_a_schedule_that_does_not_fit_is_refused(
    make: object, layout: str, asked: dict[str, Any], message: str
) -> None:
    with pytest.raises(CaptureError, match=message):
        of_stages(make, layout, **asked)


class Halving(nn.Module):
    """Blocks of one class, each of half the width."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width // 2)) for width in (16, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for each in self.blocks:
            x = each(x)
        return x


def bare() -> nn.Module:
    model = Net()
    model.scale = nn.Parameter(torch.ones(1))
    return model


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"layout": "pp=4"}, "Net has 2 equal blocks, expected at least 4"),
        ({"accumulate": 1}, "accumulate: found 1 with pp=2, expected at least 2 micro-batches"),
        (
            {"layout": "pp=2,interleave=2", "make_model": Four, "accumulate": 5},
            "accumulate: found 5 micro-batches in pp=2,interleave=2: .* multiple of the number of rounds",
        ),
        ({"make_model": lambda: nn.Linear(16, 8)}, "Linear runs no list of equal blocks"),
        ({"make_model": Halving}, r"its blocks take tensors of \[6, 16\] and of \[6, 8\], expected a chain"),
        ({"make_model": bare}, "Net: holds scale beside its blocks"),
        ({"mode": Mode.INFERENCE}, "found pp=2 with inference"),
        ({"precision": Precision.AMP_FLOAT16}, "found pp=2 with a gradient scaler"),
        ({"loss_chunks": 2}, "loss_chunks: found with pp=2"),
    ],
)
def test_a_pipeline_that_cannot_run_is_refused(asked: dict[str, object], message: str) -> None:
    with pytest.raises(CaptureError, match=message):
        captured(**{"layout": "pp=2", "accumulate": 4, **asked})  # type: ignore[arg-type]  # fields of a program
