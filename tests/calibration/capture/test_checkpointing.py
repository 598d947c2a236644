"""Checkpointing of two blocks: of each the first product, a relu, the second product, and an addition."""

import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from calibration.capture.blocks import blocks_of, checkpointed_blocks
from calibration.capture.capture import capture, capture_batches
from calibration.capture.checkpointing import add_checkpoints, checkpoint_blocks
from calibration.capture.child import answers
from calibration.capture.program import CaptureDevice, Program
from calibration.capture.request import Request, check_checkpointing
from tests.calibration.capture.ranks import SAMPLES, WIDTH, program
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layers import Phase
from vdnnsim.errors import CaptureError

WIDE = SAMPLES * 4 * WIDTH * 4
"""Bytes of the result of the first product, and of that of relu."""


_COUNTING = """
from torch import nn

made = 0

def make():
    global made
    made += 1
    return nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
"""


class Block(nn.Module):
    """Two products without a bias, which are plain products of matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        narrow: torch.Tensor = self.narrow(torch.relu(self.wide(x)))
        return x + narrow


def checkpointed(how: str, **changes: Any) -> Program:  # noqa: ANN401 - fields of several types
    return replace(program("", checkpointing=how), make_model=lambda: nn.Sequential(Block(), Block()), **changes)


def captured(how: str) -> CapturedStep:
    return capture(checkpointed(how), CaptureDevice())


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


def test_one_model_is_captured_with_checkpoints_and_without() -> None:
    """As with each alone, also with an optimizer whose states are there already."""
    changes: tuple[dict[str, Any], ...] = ({}, {"optimizer": "adamw_fused", "in_backward": True})
    asked = [checkpointed(how, **each) for each in (*changes, changes[0]) for how in ("", "full", "2", "selective", "")]
    assert tuple(capture_batches(asked, CaptureDevice())) == tuple(capture(each, CaptureDevice()) for each in asked)


def test_a_model_without_checkpoints_caches_again() -> None:
    """Where its configuration says so; the other block has none, and a forward of its own."""
    blocks = [Block(), Block()]
    model, config, own = nn.Sequential(*blocks), SimpleNamespace(use_cache=True), torch.relu
    vars(blocks[0])["config"], vars(blocks[1])["forward"] = config, own
    undo = add_checkpoints(model, "full")
    assert not config.use_cache
    assert [vars(each)["forward"] is own for each in blocks] == [False, False]
    undo()
    assert [vars(each).get("forward") for each in blocks] == [None, own]
    assert config.use_cache
    assert list(model) == blocks


class Choosing(nn.Module):
    """A model that runs what is a `Block`, as some do that mix parts which take other arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList([Block(), Block()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for each in self.parts:
            x = each(x) if isinstance(each, Block) else x
        return x


def test_blocks_with_checkpoints_keep_their_class() -> None:
    """So that a forward that looks at it runs them, and once more in backward, each for itself."""
    step = capture(replace(checkpointed("full"), make_model=Choosing), CaptureDevice())
    assert recomputed(step)["aten.relu.default"] == 2
    again = [each for each in step.operations if each.phase is Phase.BACKWARD and each.name == "aten.relu.default"]
    assert [step.modules[each.module].path for each in again] == ["parts.1", "parts.0"]


def test_a_model_is_made_once_for_captures_with_checkpoints_and_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that counts how often it makes the model."""
    (tmp_path / "counting.py").write_text(_COUNTING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    asked = Request(model="counting.py:make", batch_size=2, image=(3,))
    found = list(answers((asked, replace(asked, checkpointing="full"))))
    assert [each.error for each in found] == ["", ""]
    assert sys.modules["counting"].made == 1


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
