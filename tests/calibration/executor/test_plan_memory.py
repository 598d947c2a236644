"""Plans executed again and again on the CPU, whose allocator nobody sees; tests/pretend has PyTorch's."""

from tests.calibration.executor.bench import UNLIMITED, Bench
from tests.calibration.executor.plan_memory import PlanOutcome, compare_plans
from tests.calibration.executor.races import WatchedExecutor
from tests.pytorch_allocator.history import History
from tests.pytorch_allocator.model import GpuMemory
from vdnnsim.dnn.networks.tiny import tiny_linear
from vdnnsim.plans.placement import MemoryLimits
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.base import Base
from vdnnsim.policies.page_migration import PageMigration
from vdnnsim.policies.vdnn import VdnnAll


def outcomes(bench: Bench, limits: MemoryLimits) -> list[PlanOutcome]:
    workload = bench.workload(tiny_linear)
    plans: dict[tuple[str, ...], TrainingPlan] = {
        (each.label,): bench.plan(workload, each) for each in (Base(), PageMigration(), VdnnAll())
    }
    executor = WatchedExecutor(bench.device, workload, bench.library)
    return list(compare_plans(executor, plans, limits, History(GpuMemory(2**40, 2**40)), iterations=2))


def test_plans_that_run_have_no_race(bench: Bench) -> None:
    ran = [each for each in outcomes(bench, UNLIMITED) if not each.refused]

    assert [each.policies for each in ran] == [("base(p)",), ("vdnn_all(p)",)]
    assert [each.races for each in ran] == [(), ()]


def test_a_plan_that_is_refused_says_why(bench: Bench) -> None:
    (refused,) = (each for each in outcomes(bench, UNLIMITED) if each.refused)

    assert refused.policies == ("page_migration(p)",)
    assert "cannot do" in refused.refused


def test_a_plan_that_does_not_fit_says_what_it_asked_for(bench: Bench) -> None:
    first, *_ = outcomes(bench, MemoryLimits(UNLIMITED.model, 10, 2**60, 1))

    assert "asked for" in first.refused
    assert not first.races
