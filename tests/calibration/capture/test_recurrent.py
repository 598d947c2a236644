"""What is captured of cuDNN's recurrent layers: their sizes, which decide how long they take."""

import pytest
import torch
from msgspec.structs import replace
from torch import nn

import vdnnsim
from calibration.capture.cuda.recurrent import recurrent_work
from vdnnsim.dnn.kernel_work import RecurrentWork


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (nn.LSTM(8, 13, 2), RecurrentWork(5, 15, 8, 13, 2, 4)),
        (nn.GRU(8, 13, batch_first=True), RecurrentWork(3, 15, 8, 13, 1, 3)),
        (nn.RNN(8, 13, bidirectional=True), RecurrentWork(5, 15, 8, 13, 1, 1, 2)),
        (nn.LSTM(8, 13, proj_size=4), RecurrentWork(5, 15, 8, 13, 1, 4, projected=4)),
    ],
)
def test_layers_tell_their_steps(module: nn.RNNBase, expected: RecurrentWork) -> None:
    """Of an input of 5 x 3 x 8, 5 steps of 3 sequences, or where the batch is first 3 of 5."""
    step = vdnnsim.capture(module, torch.ones(5, 3, 8), optimizer="none", hardware="rtx_4090")
    forward, backward = (each.work for each in step.operations if "_cudnn_rnn" in each.name)
    assert forward == expected
    assert backward == replace(expected, is_backward=True, of_weights=True)


def test_a_pack_has_as_many_steps_as_its_longest_sequence() -> None:
    """Sequences of 3, 2 and 1 steps of 8 features: 3, 2 and 1 of them in each step, 6 rows."""
    names = {"batch_first": False, "num_layers": 1, "bidirectional": False, "proj_size": 0, "hidden_size": 13}
    given = {**names, "input": torch.empty(6, 8), "weight": [torch.empty(52, 8)], "batch_sizes": [3, 2, 1]}
    assert recurrent_work(given, is_backward=False) == RecurrentWork(3, 6, 8, 13, 1, 4)
