"""A chain of four images: conv1, conv2, fc, loss; forward has 4 kernels, backward 6, of which dX of conv1 is none."""

from dataclasses import replace

from tests.toy import ToyCosts, toy_chain, toy_costs, toy_setting, toy_workload
from vdnnsim.analysis.kernel_origins import KernelOrigins, joined_origins, kernel_origins
from vdnnsim.cost.table import AdjustedCosts, CostModel, CostTable, KernelCost
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Workload
from vdnnsim.hardware.server import Origin
from vdnnsim.policies.accumulate import Accumulate

CHAIN = replace(toy_workload(toy_chain(2)), batch_size=4)
PLANS = [Accumulate(steps=steps).plan(toy_setting(CHAIN, toy_costs(CHAIN, {}))) for steps in (1, 2)]
FIRST = (0, Phase.FORWARD)


def first_measured(costs: CostModel) -> CostModel:
    """The kernels of a model, the first of which was measured, of the whole batch."""

    def adjust(
        workload: Workload, layer: Layer, phase: Phase, options: tuple[KernelCost, ...]
    ) -> tuple[KernelCost, ...]:
        measured = workload.parts == 1 and (layer.index, phase) == FIRST
        return tuple(replace(each, origin=Origin.MEASURED) for each in options) if measured else options

    return AdjustedCosts(costs, adjust)


class Lacking(ToyCosts):
    def _build(self, workload: Workload) -> CostTable:
        return replace(super()._build(workload), gap="toy.csv has nothing")


def test_seconds_of_an_iteration_count_every_launch_of_distinct_plans() -> None:
    """10 kernels of 1 s over four images; in two parts 20 of half a second. The same plan on two GPUs is one."""
    costs = toy_costs(CHAIN, {})
    assert kernel_origins(PLANS[:1] * 2, costs) == KernelOrigins({Origin.ASSUMED: 10.0}, 1)
    assert kernel_origins(PLANS, costs) == KernelOrigins({Origin.ASSUMED: 20.0}, 2)


def test_a_kernel_over_a_part_has_the_origin_of_that_batch() -> None:
    """Of the whole batch the first of 10 was measured, of its parts none of 20, of half a second each."""
    found = kernel_origins(PLANS, first_measured(toy_costs(CHAIN, {})))
    assert found.seconds == {Origin.MEASURED: 1.0, Origin.ASSUMED: 19.0}


def test_gap_of_a_cost_table_is_kept_with_its_kernels() -> None:
    """Of several workloads the first gap counts, and seconds add up."""
    costs = Lacking(toy_costs(CHAIN, {}).kernels)
    whole, parts = (kernel_origins([plan], costs) for plan in PLANS)
    assert whole.gap == "toy.csv has nothing"
    assert joined_origins([KernelOrigins(), whole, parts]) == kernel_origins(PLANS, costs)
    assert joined_origins([]) == KernelOrigins()
