"""A convolutional model and two plans for it."""

import pytest
import torch

from tests.apply.mixed import known_as_mixed
from tests.apply.models import MODELS, Network
from tests.apply.training import planned
from vdnnsim.api.planning import Planned


@pytest.fixture(scope="module")
def model() -> Network:
    """Running statistics and random numbers change in each forward, so a wrong order is found."""
    torch.manual_seed(0)
    return MODELS["convolutional"].make_model()


@pytest.fixture(scope="module", params=["save_on_cpu", "mixed"])
def made(model: Network, request: pytest.FixtureRequest) -> Planned:
    """A plan that only moves, and one that also recomputes."""
    with known_as_mixed():
        return planned(MODELS["convolutional"], model, request.param)
