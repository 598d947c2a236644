import pytest

from tests.unit.plan.hand_written import WORKLOAD
from vdnnsim.plan.writer import PlanWriter


@pytest.fixture
def writer() -> PlanWriter:
    """The layers are conv1, fc and loss."""
    return PlanWriter(WORKLOAD)
