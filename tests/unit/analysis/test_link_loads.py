from tests.toy import toy_setting
from tests.two_gpus import COSTS, WORKLOAD, replay_two
from vdnnsim.analysis.several_gpus import LoadCurve, load_curves
from vdnnsim.hardware.topology import Hop, Way
from vdnnsim.plans.trace import LinkLoad, ServerTrace
from vdnnsim.policies.vdnn import VdnnAll


def test_both_gpus_offload_the_input_and_fetch_it_back() -> None:
    """10 B of each up the uplink at 10 B/s, from 0 to 2 s; of the two changes at 0 the last counts. The same down."""
    server_trace = replay_two(VdnnAll().plan(toy_setting(WORKLOAD, COSTS)))
    curves = load_curves(server_trace)
    up, down = curves[Hop("uplink", Way.UP)], curves[Hop("uplink", Way.DOWN)]

    assert (up.times_s[:2], up.rates_bytes_per_s[:2]) == ((0.0, 2.0), (10.0, 0.0))
    assert up.end_s == server_trace.iteration_s
    assert (up.carried_bytes, down.carried_bytes) == (20.0, 20.0)
    assert curves[Hop("x0", Way.UP)].rates_bytes_per_s[0] == 5.0


def test_what_a_curve_carries_until_the_end() -> None:
    """2 B/s for 1 s, 3 B/s for the 4 s that are left."""
    assert LoadCurve((0.0, 1.0), (2.0, 3.0), 5.0).carried_bytes == 14.0


def test_a_link_that_carries_nothing_has_no_curve() -> None:
    hop = Hop("x", Way.UP)
    gpus = replay_two(VdnnAll().plan(toy_setting(WORKLOAD, COSTS))).gpus

    assert set(load_curves(ServerTrace(gpus, (LinkLoad(0.0, hop, 1.0, 1),)))) == {hop}
