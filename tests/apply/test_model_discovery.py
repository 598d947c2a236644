"""What is found of a model that a script trains."""

from typing import Any

import pytest
import torch

from calibration.apply.model_discovery import name_of
from vdnnsim.dnn.training_loops import OPTIMIZERS


@pytest.mark.parametrize(
    ("kind", "options", "name"),
    [
        (torch.optim.SGD, {}, "sgd"),
        (torch.optim.SGD, {"momentum": 0.9, "foreach": False}, "momentum_for_loop"),
        (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 1e-4}, "momentum_decay"),
        (torch.optim.AdamW, {"fused": True}, "adamw_fused"),
        (torch.optim.RMSprop, {}, "rmsprop"),
    ],
)
def test_an_optimizer_has_the_name_of_its_captures(
    kind: type[torch.optim.Optimizer], options: dict[str, Any], name: str
) -> None:
    made: Any = kind
    assert name_of(made([torch.nn.Parameter(torch.zeros(2))], lr=0.1, **options)) == name
    assert name in OPTIMIZERS
