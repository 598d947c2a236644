"""Offloading the input of the toy chain, 10 B, from two GPUs behind one uplink, and its way back."""

from dataclasses import replace

import pytest

from tests.toy import TOY_SERVER, replay, toy_chain, toy_costs, toy_setting, toy_workload
from tests.two_gpus import COSTS, SERVER, WORKLOAD, replay_two
from vdnnsim.analysis.several_gpus import timed_copies, total_stretch
from vdnnsim.hardware.server import Link
from vdnnsim.policies.base import Base
from vdnnsim.policies.page_migration import PageMigration
from vdnnsim.policies.vdnn import VdnnAll


def test_copies_that_run_at_once_take_twice_as_long() -> None:
    """Links of 10 B/s: 1 s alone, either way; both GPUs offload and prefetch at the same moments: 2 s."""
    trace = replay_two(VdnnAll().plan(toy_setting(WORKLOAD, COSTS))).gpus[1]
    offload, prefetch = timed_copies(trace, SERVER, 1)

    assert (offload.alone_s, offload.taken_s, offload.stretch) == pytest.approx((1.0, 2.0, 2.0))
    assert prefetch.stretch == pytest.approx(2.0)
    assert total_stretch((offload, prefetch)) == pytest.approx(2.0)


def test_on_a_link_of_its_own_a_copy_takes_what_it_takes_alone() -> None:
    """0.5 s and 10 B at 1 B/s down, 2 B/s up."""
    server = replace(TOY_SERVER, link=Link("link", h2d_bytes_per_s=1.0, d2h_bytes_per_s=2.0, latency_s=0.5))
    workload = toy_workload(toy_chain(1))
    costs = toy_costs(workload, {})
    trace = replay(VdnnAll().plan(toy_setting(workload, costs)), costs, server=server)

    assert [copy.alone_s for copy in timed_copies(trace, server, 0)] == [5.5, 10.5]
    assert total_stretch(timed_copies(trace, server, 0)) == 1.0


@pytest.mark.parametrize("policy", [Base(), PageMigration()])
def test_where_no_engine_copies_nothing_is_stretched(policy: Base | PageMigration) -> None:
    """Base copies nothing. Of page migration not all fits into 150 B, and each buffer is one page of 35 us."""
    setting = toy_setting(WORKLOAD, COSTS)
    limits = replace(setting.limits, device_bytes=150)
    plan = policy.plan(replace(setting, known_limits=limits))
    trace = replay(plan, COSTS)

    copies = timed_copies(trace, TOY_SERVER, 0)
    assert bool(copies) is isinstance(policy, PageMigration)
    assert {copy.alone_s for copy in copies} <= {35e-6}
    assert total_stretch(copies) == pytest.approx(1.0)
