"""A second batch of a model, of which a model that keeps nothing runs no forward before it is recorded."""

import sys
from pathlib import Path

import pytest

from calibration.capture.request import Request
from calibration.capture.request_capture import captured_together

_FILE = """
import torch
from torch import nn

class Plain(nn.Module):
    forwards = 0

    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(11, 8), nn.Linear(8, 11)

    def forward(self, ids):
        Plain.forwards += 1
        return self.head(self.embed(ids))

class Own(Plain):
    def forward(self, ids):
        return super().forward(ids).square().mean()

class Rows(Plain):
    def forward(self, ids):
        return super().forward(ids).flatten(0, 1)

class Keeping(Plain):
    mask = None

    def forward(self, ids):
        if self.mask is None or len(self.mask) != len(ids):
            self.mask = torch.rand(len(ids), 1, 11)
        return super().forward(ids) * self.mask
"""


@pytest.mark.parametrize(("name", "forwards"), [("Plain", 1), ("Own", 1), ("Rows", 2), ("Keeping", 2)])
def test_a_second_batch_is_as_captured_alone(
    name: str, forwards: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels follow from the first where its rows are samples and tokens; of rows of both they do not say how many."""
    (tmp_path / "second_net.py").write_text(_FILE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("second_net", None)
    small, large = (Request(model=f"second_net.py:{name}", batch_size=each, tokens=6) for each in (2, 4))
    steps = captured_together((small, large))
    next(steps)
    counted = sys.modules["second_net"].Plain
    counted.forwards = 0
    together = next(steps)
    steps.close()
    assert counted.forwards == forwards
    (alone,) = captured_together((large,))
    assert together == alone
