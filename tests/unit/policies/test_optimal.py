"""Options of `optimal`, and its links: one of its own, a shared one, none."""

from dataclasses import replace

import pytest

from tests.toy import ROOT, TOY_LIMITS, TOY_SERVER, ReplayTrials, placement_of, toy_setting
from tests.two_gpus import SERVER
from tests.unit.planning.chain_of_ten_kernels import COSTS, WORKLOAD
from vdnnsim.cost.transfer import HostCopies
from vdnnsim.dnn.workload import Mode
from vdnnsim.engine.simulate import simulate_server
from vdnnsim.errors import PolicyError
from vdnnsim.hardware.server import Link
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.operations import Offload
from vdnnsim.policies.interface import Setting
from vdnnsim.policies.optimal import Optimal
from vdnnsim.policies.registry import known_policies, resolve_policy
from vdnnsim.policies.vdnn import VdnnDyn
from vdnnsim.scenario.experiment import simulator_of
from vdnnsim.scenario.read import read_scenario
from vdnnsim.scenario.simulator import Simulator
from vdnnsim.units import GIB

TYPES = known_policies()
AT_299 = replace(TOY_LIMITS, device_bytes=299)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("chunk", "0 B", "found '0 B', expected more than 0, auto or whole"),
        ("chunk", "half", "found 'half', expected a number with one of the units .* TiB, auto or whole"),
        ("chunk", 64, "found 64, expected text, as 'auto'"),
        ("time_limit", "0 s", "found '0 s', expected more than 0"),
        ("time_limit", "soon", "found 'soon', expected a number with one of the units s, ms, us, ns"),
        ("time_limit", "2 wall", "found '2', expected a number with one of the units s, ms, us, ns"),
        ("recompute", "no", "found 'no', expected true or false, as true"),
    ],
)
def test_wrong_options_are_refused(option: str, value: object, message: str) -> None:
    with pytest.raises(PolicyError, match=f"^optimal: {option}: {message}$"):
        resolve_policy({"policy": "optimal", option: value}, TYPES)


def test_chunks_are_of_the_size_that_is_given() -> None:
    """At 299 B 7 B are offloaded (test_offload.py): as 4 B and 3 B, in 19 s."""
    setting = toy_setting(WORKLOAD, COSTS, AT_299)

    plan = Optimal(recompute=False, chunk="4 B").plan(setting)

    extents = [each.extent for each in plan.operations if isinstance(each, Offload)]
    assert extents == [range(4), range(4, 7)]
    assert setting.trials.run_trial(plan).cost_s == 19


def test_it_knows_the_latency_of_the_link() -> None:
    """At 4 B/s 7 B take 1.75 s, with 4 s before each copy: they are offloaded at once, and kernel 5 waits until 5.75 s.

    At 299 B 5 B must be on the host for kernel 8, which ends at 9.75 s: they are back at 15.5 s, for kernel 9.
    """
    server = replace(TOY_SERVER, link=Link("late", 4.0, 4.0, latency_s=4.0))
    setting = toy_setting(WORKLOAD, COSTS, AT_299, server)

    plan = Optimal(recompute=False).plan(setting)

    assert setting.trials.run_trial(plan).cost_s == 16.5


def test_gpus_that_share_a_link_plan_for_their_part_of_it() -> None:
    """Two GPUs share 10 B/s: 7 B are offloaded in 1.4 s. At 299 B 5 B are prefetched from 9 to 10 s, for kernel 9.

    The bound, which holds whatever the other GPU does, counts on 10 B/s: 5 B are prefetched in 0.5 s.
    """
    trials, copies = ReplayTrials(COSTS, AT_299), HostCopies(SERVER, gpus=2)
    setting = Setting(WORKLOAD, COSTS, AT_299, trials, gpus=2, groups=((0, 1),), known_copies=copies)

    plan = Optimal(recompute=False).plan(setting)

    placement = placement_of(plan, AT_299)
    both = simulate_server([(plan, placement)] * 2, COSTS, SERVER, PinnedMemory.ARENA)
    assert [each.iteration_s for each in both.gpus] == [11, 11]
    assert plan.certificate is not None
    assert plan.certificate.bound_s == pytest.approx(10.5, rel=1e-4)


def test_inference_neither_offloads_nor_recomputes() -> None:
    workload = replace(WORKLOAD, mode=Mode.INFERENCE)
    setting = toy_setting(workload, COSTS)
    plan = Optimal().plan(setting)
    assert setting.trials.run_trial(plan).cost_s == 4
    assert plan.certificate is not None
    assert plan.certificate.bound_s == 4
    # A setting without a link is refused.
    setting = replace(toy_setting(WORKLOAD, COSTS), known_copies=None)
    with pytest.raises(PolicyError, match=r"found a look at setting.copies"):
        Optimal().plan(setting)


def alexnet_in_pieces() -> Simulator:
    """AlexNet on a Titan X of 0.85 GiB under PyTorch's allocator, where vDNN_dyn has to downgrade algorithms."""
    machine = simulator_of(read_scenario(ROOT / "scenarios" / "alexnet.yaml"))
    limits = replace(machine.limits, model=MemoryModel.PYTORCH, device_bytes=round(0.85 * GIB))
    return replace(machine, limits=limits)


def test_workspaces_that_do_not_fit_are_replaced_one_by_one() -> None:
    """It is no slower than vDNN_dyn, which does the same."""
    machine = alexnet_in_pieces()
    plans = (Optimal(recompute=False).plan(machine.setting()), VdnnDyn().plan(machine.setting()))
    planned, dynamic = (machine.run_trial(each) for each in plans)
    assert planned.fits
    assert dynamic.fits
    assert planned.cost_s <= dynamic.cost_s
    # Nothing is repaired after the limit; plans for less memory are tried, the smallest last.
    plan = Optimal(recompute=False, time_limit="1 us").plan(machine.setting())
    assert machine.run_trial(plan).fits
