from dataclasses import replace

from tests.toy import TOY_LIMITS, replay, toy_chain, toy_costs, toy_setting, toy_workload
from vdnnsim.analysis.metrics import measure
from vdnnsim.analysis.results import PolicyResult
from vdnnsim.plans.placement import DoesNotFit, place_plan
from vdnnsim.policies.base import Base


def test_a_result_fits_unless_it_was_refused() -> None:
    """The plan wants 188 B (see the tests of memory): it fits 188 B and does not fit 187."""
    workload = toy_workload(toy_chain(1))
    costs = toy_costs(workload, {})
    plan = Base().plan(toy_setting(workload, costs))
    trace = replay(plan, costs, limits=replace(TOY_LIMITS, device_bytes=188))
    refusal = place_plan(plan, replace(TOY_LIMITS, device_bytes=187))
    assert isinstance(refusal, DoesNotFit)

    fitting = PolicyResult(
        policy="base(p)",
        algorithms="p",
        gpu=0,
        trace=trace,
        refusal=None,
        metrics=measure(trace, batch_size=1),
        performance_ratio=1.0,
        feature_performance_ratio=1.0,
    )

    assert fitting.fits
    assert not replace(fitting, refusal=refusal).fits
