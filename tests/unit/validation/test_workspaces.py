from dataclasses import replace

from tests.toy import ToyCosts, toy_chain, toy_costs, toy_workload
from tests.unit.validation.fake_device import FakeLaboratory
from vdnnsim.cost.table import KernelCost
from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.server import Origin
from vdnnsim.validation.method import FREE_GPU
from vdnnsim.validation.run.both_sides import stated_workspaces

FORWARD = ("conv1", Phase.FORWARD)
FAST, LEAN = (KernelCost(name, 1.0, 100, Origin.FITTED) for name in ("fast", "lean"))


def stated(options: tuple[KernelCost, ...], told: dict[str, int]) -> tuple[KernelCost, ...]:
    """What becomes of the options of conv1 in forward on a device that tells this."""
    workload = toy_workload(toy_chain(1))
    costs = ToyCosts({**toy_costs(workload, {}).kernels, (0, Phase.FORWARD): options})
    executor = FakeLaboratory(FREE_GPU, stated={FORWARD: told}).executor(workload)
    return stated_workspaces(costs, executor).table(workload).options(0, Phase.FORWARD)


def test_unmeasured_workspaces_are_those_that_the_device_states() -> None:
    assert stated((FAST, LEAN), {"fast": 7, "lean": 0}) == (
        replace(FAST, workspace_bytes=7),
        replace(LEAN, workspace_bytes=0),
    )


def test_algorithms_that_the_device_lacks_are_left_out() -> None:
    assert stated((FAST, LEAN), {"lean": 3}) == (replace(LEAN, workspace_bytes=3),)


def test_algorithms_stay_where_the_device_has_none_of_them() -> None:
    assert stated((FAST, LEAN), {"other": 3}) == (FAST, LEAN)


def test_measured_workspaces_are_kept() -> None:
    measured = replace(FAST, origin=Origin.MEASURED)
    assert stated((measured, LEAN), {"fast": 7, "lean": 3}) == (measured, replace(LEAN, workspace_bytes=3))
    assert stated((measured,), {}) == (measured,)
