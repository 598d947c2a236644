import pytest

from tests.unit.plans.hand_written import WORKLOAD
from vdnnsim.plans.writer import PlanWriter


@pytest.fixture
def writer() -> PlanWriter:
    """The layers are conv1, fc and loss."""
    return PlanWriter(WORKLOAD)
