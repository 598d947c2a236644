"""Networks as parameters of a test: one of each kind in the suite, its deeper sisters with `pytest -m thorough`."""

from collections.abc import Iterable
from typing import Final

import pytest

_SISTERS: Final = frozenset(
    """
    vgg116 vgg216 vgg316 vgg416 vgg11_torchvision vgg13_torchvision vgg19_torchvision resnet34 resnet110 resnet152
    p3d_resnet199 densenet121 lstm_rnn_800 wrn_28_10
    """.split()
)
"""Deep ones, and those that differ in a number from one that stays."""


def each_network(names: Iterable[str]) -> list[object]:
    """Return names as parameters, marked where the suite passes over them."""
    return [pytest.param(name, marks=pytest.mark.thorough) if name in _SISTERS else name for name in names]
