from dataclasses import replace

import pytest

from tests.toy import ToyCosts, toy_chain, toy_costs, toy_workload
from tests.unit.validation.fake_device import FakeLaboratory
from vdnnsim.cost.table import KernelCost
from vdnnsim.dnn.layers import Phase
from vdnnsim.hardware.server import Origin
from vdnnsim.validation.method import FREE_GPU
from vdnnsim.validation.run.comparison import stated_workspaces

FAST, LEAN = (KernelCost(name, 1.0, 100, Origin.FITTED) for name in ("fast", "lean"))


MEASURED = replace(FAST, origin=Origin.MEASURED)


@pytest.mark.parametrize(
    ("options", "stated", "expected"),
    [
        ((FAST, LEAN), {"fast": 7, "lean": 0}, (replace(FAST, workspace_bytes=7), replace(LEAN, workspace_bytes=0))),
        ((FAST, LEAN), {"lean": 3}, (replace(LEAN, workspace_bytes=3),)),
        ((FAST, LEAN), {"other": 3}, (FAST, LEAN)),
        ((MEASURED, LEAN), {"fast": 7, "lean": 3}, (MEASURED, replace(LEAN, workspace_bytes=3))),
        ((MEASURED,), {}, (MEASURED,)),
    ],
    ids=["unmeasured", "one that the device lacks", "all that the device lacks", "measured", "nothing stated"],
)
def test_workspaces_of_unmeasured_kernels_are_those_that_the_device_states(
    options: tuple[KernelCost, ...], stated: dict[str, int], expected: tuple[KernelCost, ...]
) -> None:
    workload = toy_workload(toy_chain(1))
    costs = ToyCosts({**toy_costs(workload, {}).kernels, (0, Phase.FORWARD): options})
    executor = FakeLaboratory(FREE_GPU, stated={("conv1", Phase.FORWARD): stated}).executor(workload)
    assert stated_workspaces(costs, executor).table(workload).options(0, Phase.FORWARD) == expected
