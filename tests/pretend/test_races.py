"""Plans of all policies, executed again and again on a pretended GPU: memory as the model has it, and no races."""

from collections.abc import Iterable, Iterator

import pytest
import torch

from calibration.devices.arithmetic import arithmetic
from calibration.devices.cuda import CudaDevice
from calibration.kernels.pytorch import PyTorchLibrary
from tests.calibration.executor.bench import UNLIMITED, Bench, every_policy
from tests.calibration.executor.plan_memory import PLAN_COLUMNS, compare_plans, plan_row
from tests.calibration.executor.races import WatchedExecutor, find_races
from tests.calibration.executor.test_races import is_read_too_early, waits, without
from tests.pretend.conftest import AddRows
from tests.pretended_gpu import free_cache
from tests.pytorch_allocator.history import History, recorded
from tests.pytorch_allocator.model import GpuMemory
from tests.pytorch_allocator.twin import allocator_set
from tests.unit.plans.hand_written import with_operations
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.memory.settings import AllocatorSettings
from vdnnsim.plans.operations import Operation
from vdnnsim.plans.placement import DoesNotFit
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.vdnn import VdnnAll

pytestmark = pytest.mark.pretend


@pytest.fixture
def grow() -> bool:
    return False


@pytest.fixture
def history(grow: bool) -> Iterator[History]:  # noqa: FBT001  # given by pytest
    """What the allocator of this process did, which is nothing yet."""
    free_cache()
    assert torch.cuda.memory_reserved() == 0, "another test holds memory of the GPU"
    memory = GpuMemory(*torch.cuda.mem_get_info(), AllocatorSettings(expandable_segments=grow))
    with arithmetic(tf32=False), allocator_set(memory.settings, 0, memory.total_bytes):
        yield History(memory)
        free_cache()


def executor_of(workload: Workload, history: History) -> tuple[WatchedExecutor, Bench]:
    def open_device() -> tuple[WatchedExecutor, Bench]:
        bench = Bench.of(CudaDevice(0), PyTorchLibrary("cuda", channels_last=False))
        return WatchedExecutor(bench.device, workload, bench.library, keeps_results=False), bench

    opened, entries = recorded(open_device, 0)
    history.replay(entries)
    return opened


def plans_of(policies: Iterable[Policy], bench: Bench, workload: Workload) -> dict[tuple[str, ...], TrainingPlan]:
    """Return the plans of policies by the labels of those that make the same."""
    labels: dict[tuple[Operation, ...], list[str]] = {}
    plans: dict[tuple[Operation, ...], TrainingPlan] = {}
    for policy in policies:
        plan = bench.plan(workload, policy)
        plans.setdefault(plan.operations, plan)
        labels.setdefault(plan.operations, []).append(policy.label)
    return {tuple(labels[operations]): plan for operations, plan in plans.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "batch_size", "grow"),
    [("alexnet", 8, False), ("alexnet", 8, True), ("googlenet", 2, False), ("resnet50", 2, False)],
)
def test_all_policies_reserve_what_the_model_says_and_race_nowhere(
    history: History,
    network: str,
    batch_size: int,
    grow: bool,  # noqa: FBT001  # given by pytest
    add_rows: AddRows,
) -> None:
    """Six iterations of each plan, every one of whose requests finds the memory that the model says."""
    workload = Workload(build_network(network), batch_size)
    executor, bench = executor_of(workload, history)
    policies = every_policy()
    plans, entries = recorded(lambda: plans_of(policies, bench, workload), 0)
    history.replay(entries)

    outcomes = list(compare_plans(executor, plans, UNLIMITED, history, iterations=6))
    name = f"{network} ({batch_size}){', growing segments' if grow else ''}"
    add_rows("plans.csv", PLAN_COLUMNS, [plan_row(name, 6, outcomes)])
    reserved_bytes = torch.cuda.memory_reserved()
    bench.device.close()

    assert [each for each in outcomes if each.refused or each.divergence is not None or each.races] == []
    assert sum(len(each.policies) for each in outcomes) == len(policies)
    assert all(each.requests for each in outcomes)
    assert history.beside.allocator.reserved_bytes == reserved_bytes


def test_waits_that_are_left_out_are_races_on_real_addresses(history: History) -> None:
    """Of the plan of vdnn_all for AlexNet each wait is left out in turn."""
    workload = Workload(build_network("alexnet"), 2)
    executor, bench = executor_of(workload, history)
    plan = bench.plan(workload, VdnnAll())
    watched = executor.watch(plan, UNLIMITED)
    bench.device.close()
    assert not isinstance(watched, DoesNotFit)

    missed = {at: find_races(without(plan, at), watched.touches) for at in waits(plan.operations)}
    needed = [at for at in missed if is_read_too_early(with_operations(plan, without(plan, at)))]

    assert find_races(plan.operations, watched.touches) == []
    assert needed
    assert all(missed[at] for at in needed)
