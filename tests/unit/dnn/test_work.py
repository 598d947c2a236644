"""The work of operators on one image, under both saving rules."""

from dataclasses import replace

import pytest

from vdnnsim.dnn.convolutional import Activation, BatchNormalization, Convolution, FullyConnected, Pooling, SoftmaxLoss
from vdnnsim.dnn.elementwise import Concat, ElementwiseAdd
from vdnnsim.dnn.operator import Operator, SavingRule, Statistics, Work
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.vision import ClassToken, LearnedPositions

PAPER, AUTOGRAD = SavingRule.PAPER, SavingRule.AUTOGRAD
MAXIMUM, AVERAGE = (Pooling((2, 2), (2, 2), average=average) for average in (False, True))
FEW, IMAGE, SQUARE, SEQUENCE = MapShape(5), MapShape(2, 3, 3), MapShape(1, 4, 4), MapShape(6, steps=5)


@pytest.mark.parametrize("rule", SavingRule)
@pytest.mark.parametrize(
    ("operator", "inputs", "work"),
    [
        # 3x2x2 outputs, each over 2x2x2 elements; three filters with a bias each.
        (
            Convolution(3, (2, 2)),
            (IMAGE,),
            Work(forward_flop=192, backward_flop=192, weights=27, biases=3, filter_elements=8, saved_inputs=(0,)),
        ),
        # Two features over 18 elements and a bias.
        (
            FullyConnected(2),
            (IMAGE,),
            Work(forward_flop=72, backward_flop=72, weights=38, biases=2, filter_elements=18, saved_inputs=(0,)),
        ),
        (Activation(), (FEW,), Work(forward_flop=5, backward_flop=5, saved_outputs=(0,))),
        (Concat(), (FEW, FEW), Work(forward_flop=0, backward_flop=0)),
        (ElementwiseAdd(), (FEW, FEW), Work(forward_flop=5, backward_flop=0)),
        # Copies; the gradient of the token is summed over the batch. Of positions each step of each feature has one.
        (ClassToken(), (IMAGE,), Work(forward_flop=0, backward_flop=2, weights=2)),
        (LearnedPositions(), (SEQUENCE,), Work(forward_flop=30, backward_flop=30, weights=30)),
        # 18 elements of 2 channels: gamma and beta, mean and inverse deviation in float32, X twice.
        (
            BatchNormalization(),
            (IMAGE,),
            Work(
                forward_flop=90,
                backward_flop=126,
                weights=4,
                saved_inputs=(0,),
                statistics=Statistics(4, element_bytes=4, of_batch=True),
                passes=2,
            ),
        ),
    ],
)
def test_both_rules_agree(operator: Operator, inputs: tuple[MapShape, ...], work: Work, rule: SavingRule) -> None:
    assert operator.work(inputs, rule) == work


@pytest.mark.parametrize(
    ("operator", "rule", "work"),
    [
        (MAXIMUM, PAPER, Work(forward_flop=16, backward_flop=16, saved_inputs=(0,), saved_outputs=(0,))),
        (AVERAGE, PAPER, Work(forward_flop=16, backward_flop=16, saved_inputs=(0,), saved_outputs=(0,))),
        # An int64 for each element of Y.
        (
            MAXIMUM,
            AUTOGRAD,
            Work(forward_flop=16, backward_flop=16, saved_inputs=(0,), statistics=Statistics(4, element_bytes=8)),
        ),
        (AVERAGE, AUTOGRAD, Work(forward_flop=16, backward_flop=16, saved_inputs=(0,))),
    ],
)
def test_the_rules_differ_in_pooling(operator: Operator, rule: SavingRule, work: Work) -> None:
    """4 outputs, each from a window of 4."""
    assert operator.work((SQUARE,), rule) == work


def test_autograd_takes_a_loss_in_two_and_holds_what_is_between_them() -> None:
    """Softmax's gradient is as large as the 5 logits, beside what the loss reads: them, and the label of one class."""
    work = Work(forward_flop=25, backward_flop=25, saved_outputs=(0,))

    assert SoftmaxLoss().work((FEW,), PAPER) == work
    assert SoftmaxLoss().work((FEW,), AUTOGRAD) == replace(work, temporaries=5, labels=1)


def test_channels_or_steps_are_joined() -> None:
    """Nine pixels and the token are ten steps."""
    assert ClassToken().outputs((IMAGE,)) == (MapShape(2, steps=10),)
    assert Concat().outputs((IMAGE, MapShape(5, 3, 3))) == (MapShape(7, 3, 3),)
    with pytest.raises(AssertionError, match="cannot be joined"):
        Concat().outputs((IMAGE, SQUARE))
