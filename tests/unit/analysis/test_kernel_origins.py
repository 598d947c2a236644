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
    """Costs whose tables lack something."""

    def _build(self, workload: Workload) -> CostTable:
        return replace(super()._build(workload), gap="toy.csv has nothing")


def test_a_kernel_counts_once_however_often_it_runs() -> None:
    """10 kernels over four images, in one plan or in two; over two images 10 more, each of which runs twice."""
    costs = toy_costs(CHAIN, {})
    assert kernel_origins(PLANS[:1] * 2, costs).counts == {Origin.ASSUMED: 10}
    assert kernel_origins(PLANS, costs).counts == {Origin.ASSUMED: 20}


def test_a_kernel_over_a_part_has_the_origin_of_that_batch() -> None:
    found = kernel_origins(PLANS, first_measured(toy_costs(CHAIN, {})))
    assert found.counts == {Origin.MEASURED: 1, Origin.ASSUMED: 19}
    assert found.by_kernel[0, Phase.FORWARD, "only", 4] is Origin.MEASURED
    assert found.by_kernel[0, Phase.FORWARD, "only", 2] is Origin.ASSUMED


def test_gap_of_a_cost_table_is_kept_with_its_kernels() -> None:
    """Of several workloads the first gap counts, and kernels that they share are counted once: 10 over four images."""
    costs = Lacking(toy_costs(CHAIN, {}).kernels)
    whole, both = (kernel_origins(plans, costs) for plans in (PLANS[:1], PLANS))
    assert whole.gap == "toy.csv has nothing"
    assert joined_origins([KernelOrigins(), whole, both]) == both
    assert joined_origins([]) == KernelOrigins()
