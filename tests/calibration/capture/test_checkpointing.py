"""Checkpointing of two blocks: of each the first product, a relu, the second product, and an addition."""

from collections import Counter

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from calibration.capture.blocks import blocks_of, checkpointed_blocks
from calibration.capture.capture import capture
from calibration.capture.checkpointing import checkpoint_blocks
from calibration.capture.program import CaptureDevice
from calibration.capture.request import Request, check_checkpointing
from tests.calibration.capture.ranks import SAMPLES, WIDTH, program
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import Phase
from vdnnsim.errors import CaptureError

WIDE = SAMPLES * 4 * WIDTH * 4
"""Bytes of the result of the first product, and of that of relu."""


class Block(nn.Module):
    """Two products without a bias, which are plain products of matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        narrow: torch.Tensor = self.narrow(torch.relu(self.wide(x)))
        return x + narrow


def captured(how: str) -> CapturedStep:
    made = replace(program("", checkpointing=how), make_model=lambda: nn.Sequential(Block(), Block()))
    return capture(made, CaptureDevice())


def recomputed(step: CapturedStep) -> Counter[str]:
    """Operators of forward that run in backward; products of gradients read a gradient."""
    forward = {each.name for each in step.operations if each.phase is Phase.FORWARD} - {"aten.mm.default"}
    again = (each for each in step.operations if each.phase is Phase.BACKWARD)
    return Counter(each.name for each in again if each.name in forward)


def wide_until_backward(step: CapturedStep) -> int:
    """How many wide results of forward live on in backward."""
    end = max(position for position, each in enumerate(step.operations) if each.phase is Phase.FORWARD)
    made = {
        step.tensors[each.memory].storage
        for operation in step.operations[: end + 1]
        for each in operation.operands
        if each.access.writes
    }
    return sum(step.storages[each].nbytes == WIDE and step.storages[each].is_held_after(end) for each in made)


@pytest.mark.parametrize(("how", "blocks", "wide"), [("", 0, 2), ("full", 2, 0), ("2", 1, 1), ("1", 2, 0)])
def test_blocks_run_again_in_backward(how: str, blocks: int, wide: int) -> None:
    """Backward needs the result of relu of each block, which is kept or made again."""
    step = captured(how)

    assert recomputed(step)["aten.relu.default"] == blocks
    assert wide_until_backward(step) == wide
    assert not any("checkpoint" in each.path for each in step.modules)


def test_selective_keeps_every_second_product() -> None:
    """Of each block the first product is kept, so relu alone runs again; the second saves nothing for backward.

    Backward has two products of gradients for each of four, but none for the gradient of the input of the model.
    """
    full, selective = captured("full"), captured("selective")

    def products(step: CapturedStep) -> int:
        return sum(each.name == "aten.mm.default" and each.phase is Phase.BACKWARD for each in step.operations)

    assert recomputed(selective)["aten.relu.default"] == 2
    assert wide_until_backward(selective) == 2
    assert products(selective) == 2 * 4 - 1
    assert products(full) == products(selective) + 2


def test_a_model_without_blocks_is_refused() -> None:
    with pytest.raises(CaptureError, match="--checkpointing: Linear has no list of equal blocks"):
        checkpoint_blocks(nn.Linear(2, 2), "full")


def test_fewer_blocks_than_every_so_many_are_refused() -> None:
    blocks = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    with pytest.raises(CaptureError, match="found 3 for Sequential of 2 blocks, expected at most that"):
        checkpoint_blocks(blocks, "3")


@pytest.mark.parametrize("how", ["some", "0", "-1", "1.5"])
def test_another_way_is_refused(how: str) -> None:
    with pytest.raises(CaptureError, match=f"--checkpointing: found '{how}', expected full, selective"):
        check_checkpointing(how)
    with pytest.raises(CaptureError, match="--checkpointing"):
        Request(model="timm:resnet18", batch_size=1, checkpointing=how).check()


def test_parts_of_most_parameters_stand_for_blocks_that_have_few() -> None:
    """Of a U-Net one list has two blocks of a class, 2 of 5 equal ones; all five blocks are checkpointed.

    A layer without parts, of which there are two, is none; of a sequence of blocks these are the blocks, not what is in
    them.
    """

    class Other(Block):
        pass

    sides = nn.ModuleList([nn.ModuleList([Block(), Other()]), nn.ModuleList([Block(), Other(), Block()])])
    model = nn.ModuleDict({"sides": sides, "first": nn.Linear(1, 1), "last": nn.Linear(1, 1)})
    assert [type(each) for each in blocks_of(model)] == [Block, Block]
    assert [type(each) for each in checkpointed_blocks(model)] == [Block, Other, Block, Other, Block]
    blocks = nn.Sequential(Block(), Block())
    sequence = nn.Sequential(blocks, nn.Linear(1, 1))
    assert checkpointed_blocks(sequence) == blocks_of(sequence) == list(blocks)
