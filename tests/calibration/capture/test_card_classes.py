"""Cards for which the same operations are captured."""

from itertools import product

import msgspec
import pytest
import torch

from calibration.capture.card_classes import ANY, Capability, class_of_card, classes_of
from calibration.capture.cuda import attention
from calibration.capture.cuda.rules import Gpu
from tests.captured_steps import chain
from vdnnsim.dnn.captured_step import CapturedStep

EVERY = (
    (3, 5),
    (5, 2),
    (6, 0),
    (6, 1),
    (7, 0),
    (7, 5),
    (8, 0),
    (8, 6),
    (8, 9),
    (9, 0),
    (10, 0),
    (10, 3),
    (12, 0),
    (12, 1),
)


def attending(head: int) -> CapturedStep:
    """Return the chain as if it had attention with heads of this size."""
    return msgspec.structs.replace(chain(1), largest_head=head)


@pytest.mark.parametrize("capability", EVERY)
def test_attention_is_chosen_alike_within_a_class(capability: Capability) -> None:
    """For sizes of heads on both sides of each limit in the rules, by the rules themselves."""
    kinds, heads = (torch.float32, torch.float16, torch.bfloat16), (7, 64, 128, 192, 200, 224, 232, 256, 264)
    for head, kind, dropout, trains in product(heads, kinds, (0.0, 0.1), (True, False)):
        like = class_of_card(attending(head), capability)
        assert like in classes_of(capability)
        tensor = torch.empty(2, 4, 8, head, dtype=kind, device="meta", requires_grad=trains)
        call = attention._Attention(tensor, tensor, tensor, None, dropout, is_causal=True, grouped=False)  # noqa: SLF001
        own, stated = (attention._choose(Gpu(each, 1), call) for each in (capability, like))  # noqa: SLF001
        assert own is stated, (head, kind, dropout, trains)


def test_the_class_of_a_step_is_as_narrow_as_what_it_computes() -> None:
    """Without attention it is that of every card; the RTX 4090 attends as the A100 up to 192 elements a head.

    cuDNN's recurrent layers, and Inductor's kernels, are of one card.
    """
    assert class_of_card(chain(1), (8, 9)) == ANY
    assert [class_of_card(attending(each), (8, 9)) for each in (192, 193)] == [(8, 0), (8, 6)]
    recurrent = msgspec.structs.replace(chain(1).operations[0], name="aten._cudnn_rnn.default")
    assert class_of_card(msgspec.structs.replace(chain(1), operations=(recurrent,)), (8, 9)) == (8, 9)
    assert class_of_card(msgspec.structs.replace(chain(1), compiled=True), (8, 9)) == (8, 9)
