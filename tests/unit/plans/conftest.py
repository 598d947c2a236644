import pytest

from tests.plan_writer import PlanWriter
from tests.unit.plans.hand_written import WORKLOAD


@pytest.fixture
def writer() -> PlanWriter:
    """The layers are conv1, fc and loss."""
    return PlanWriter(WORKLOAD)
