"""What a step would hold with each block checkpointed."""

from tests.captured_steps import chain
from tests.trained_steps import MIB, blocks
from vdnnsim.dnn.checkpointed_blocks import CheckpointedBlocks


def test_inputs_are_held_and_what_one_block_saves() -> None:
    """Of 16 samples eight blocks get 8 x 16 MiB, and one saves 16 x 4 MiB; beside 8 MiB of weights and 16 x 8 B.

    Its gradients are estimated as as much again. That is no more than the step with checkpoints takes.
    """
    found = CheckpointedBlocks.of(blocks(16))
    assert found == CheckpointedBlocks(8 * MIB + 16 * 8, 128 * MIB, 64 * MIB)
    assert (found.least_bytes, found.growing_bytes) == (200 * MIB + 128, 256 * MIB)
    assert found.least_bytes <= blocks(16, checkpointed=True).peak_live_bytes


def test_a_step_without_blocks_holds_what_is_given() -> None:
    """Three weights of 4 B, and two images of 16 B with labels of 8 B."""
    assert CheckpointedBlocks.of(chain(2)) == CheckpointedBlocks(12 + 32 + 16, 0, 0)
