"""Machines ranked for a captured model: the chain of `tests/captured_steps.py` on cards without gaps or a context."""

from collections import defaultdict
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.answers import MIB, TYPES, answered, asked
from tests.captured_steps import chain
from tests.machines import shipped_profile
from tests.nested import changed
from vdnnsim.analysis.answer import Change
from vdnnsim.analysis.machines import Offer, Ranking, Unfit
from vdnnsim.analysis.results import PolicyResult
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.training_loops import Loop
from vdnnsim.hardware.profile import Profile
from vdnnsim.hardware.server import Server
from vdnnsim.memory.choices import MemoryChoice, MemoryModel
from vdnnsim.memory.settings import AllocatorSettings
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.registry import known_policies
from vdnnsim.report.machines import findings
from vdnnsim.scenario.experiment import run_scenario, simulator_of
from vdnnsim.scenario.read import read_scenario
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.scenario.simulator import Planned, Simulator
from vdnnsim.study import nearby_machines as module
from vdnnsim.study import ways_on_machines
from vdnnsim.study.answer_replays import AnswerReplays
from vdnnsim.study.machines import Prices
from vdnnsim.study.nearby_machines import nearby
from vdnnsim.study.replay_budget import Tried
from vdnnsim.study.shared_plans import SharedPlans
from vdnnsim.study.ways_on_machines import OPERATIONS, rank_by_ways

SCENARIO = """\
schema_version: 1
workload: {network: alexnet, batch_size: 128, precision: float32}
hardware: titan_x_maxwell
policies: [base(p), vdnn_all(p), vdnn_dyn]
"""


def model() -> CapturedModel:
    return CapturedModel(chain(20_000), chain(10_000))


def card(memory_bytes: int, name: str = "rtx_4090") -> Profile:
    return changed(shipped_profile(name), "server.gpu", memory_bytes=memory_bytes, context_bytes=0)


def test_a_machine_holds_what_run_finds_on_it() -> None:
    """In a MiB: the first of the answer that fits, micro-batches, with its time, its rate and its memory."""
    scenario = asked(model(), MIB)
    _, made = answered(scenario)
    way = next(way for way in made.ways if way.fits)
    assert way.change is Change.MICRO_BATCHES
    (offer,) = rank_by_ways(scenario, [card(MIB)], TYPES).offers
    assert offer.policy == way.words == f"pytorch(p) in {way.rounds} micro-batches"
    found = offer.iteration_s, offer.samples_per_s, offer.asked_bytes, offer.held_bytes
    assert found == (way.iteration_s, way.samples_per_s, way.allocated_bytes, way.held_bytes)


def test_a_machine_does_not_depend_on_the_others() -> None:
    """Neither the order of what was found, which is of memory, that of the ranking is of time."""
    scenario, large, small = asked(model(), MIB), card(64 * MIB, "a100_80gb"), card(MIB)
    done: list[Offer | Unfit] = []
    both = rank_by_ways(scenario, [small, large], TYPES, done=done.append)
    assert [each.name for each in done] == ["a100_80gb", "rtx_4090"]
    alone = [offer for each in (small, large) for offer in rank_by_ways(scenario, [each], TYPES).offers]
    assert sorted(both.offers, key=lambda each: each.name) == sorted(alone, key=lambda each: each.name)
    assert set(both.policies) == {"pytorch(p)"}


def test_a_step_is_captured_for_each_card() -> None:
    """That of the A100 has half of the samples here, so that it takes less there."""

    def captured_for(server: Server) -> CapturedModel:
        return CapturedModel(chain(10_000)) if server.name == "a100_80gb" else model()

    scenario, profiles = asked(model(), MIB), [card(64 * MIB, "a100_80gb"), card(64 * MIB)]
    held = {each.name: each.held_bytes for each in rank_by_ways(scenario, profiles, TYPES, captured_for).offers}
    as_it_is = {each.name: each.held_bytes for each in rank_by_ways(scenario, profiles, TYPES).offers}
    assert held["rtx_4090"] == as_it_is["rtx_4090"] == as_it_is["a100_80gb"] > held["a100_80gb"]


def test_only_what_computes_the_same_is_tried() -> None:
    """In a 16th of a MiB no policy fits; no smaller batch is tried, and no loop with states of 8 bits."""
    single = CapturedModel(chain(20_000), capture_loop=lambda *_: CapturedModel(chain(20_000)))
    scenario = replace(asked(single, MIB), captured=single)
    (unfit,) = rank_by_ways(scenario, [card(MIB // 16)], TYPES).unfit
    assert " would hold " in unfit.reason
    loops: list[Loop] = []

    def in_loop(loop: Loop, _batch_size: int) -> CapturedModel:
        loops.append(loop)
        return CapturedModel(msgspec.structs.replace(chain(20_000), optimizer=loop.optimizer or "adamw"))

    adamw = CapturedModel(msgspec.structs.replace(chain(20_000), optimizer="adamw"), capture_loop=in_loop)
    rank_by_ways(asked(adamw, MIB), [card(MIB // 16)], TYPES)
    assert all(each.is_exact for each in loops)


def test_without_time_all_is_tried_that_plans_at_once() -> None:
    """Micro-batches need another capture; what holds too much throughout needs no replay.

    The 1.07 MiB of `save_on_cpu` fit into 1.25 MiB, but not into one, where a search may find more.
    """
    scenario = asked(CapturedModel(chain(20_000), capture=chain), MIB)
    (offer,) = rank_by_ways(scenario, [card(5 * MIB // 4)], TYPES, operations=0).offers
    assert offer.policy == "save_on_cpu(p) by apply"
    (unfit,) = rank_by_ways(scenario, [card(MIB)], TYPES, operations=0).unfit
    assert unfit.undecided
    assert unfit.reason.startswith("save_on_cpu(p) by apply would hold 1.07 MiB of 1.00 MiB")
    late = "not tried in time: pytorch(p) in 2 micro-batches, checkpoint(p) in 2 micro-batches and optimal by apply"
    assert unfit.reason.endswith(late)
    (unfit,) = rank_by_ways(asked(model(), MIB), [card(8)], TYPES, operations=0).unfit
    assert not unfit.undecided
    assert unfit.reason.startswith("parameters, gradients and optimizer states alone take 24 B")


def test_a_plain_loop_that_is_too_large_is_replayed_on_one_card(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a card of 64 MiB; the small one has what it has alone."""
    whole: list[str] = []
    planned = SharedPlans.planned

    def noted(self: SharedPlans, policy: Policy, simulator: Simulator) -> Planned:
        if simulator.workload.batch_size == 20_000 and simulator.workload.rounds == 1:
            whole.append(simulator.server.name)
        return planned(self, policy, simulator)

    monkeypatch.setattr(SharedPlans, "planned", noted)
    cards = (card(64 * MIB, "a100_80gb"), card(MIB))
    found = rank_by_ways(asked(model(), 64 * MIB), cards, TYPES)
    assert whole == ["a100_80gb"]
    alone = rank_by_ways(asked(model(), 64 * MIB), cards[1:], TYPES)
    assert [each for each in found.offers if each.name == "rtx_4090"] == list(alone.offers)


def test_a_machine_that_cannot_win_waits_for_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were it no 50 but a 1000th of the first, the kernels of a card of a MiB would take longer than a step there.

    With more time it is tried, and where somebody names it, or prices, by which it may be first.
    """
    monkeypatch.setattr(ways_on_machines, "SLOW", 0.001)
    scenario, cards = asked(model(), MIB), (card(64 * MIB, "a100_80gb"), card(MIB))
    ranking = rank_by_ways(scenario, cards, TYPES)
    assert [each.name for each in ranking.offers] == ["a100_80gb"]
    assert findings(ranking)[-1] == (
        "not tried without a longer --time-limit: rtx_4090: kernels alone take over 0.001 times as long as the first"
    )
    prices = Prices("EUR", {"rtx_4090": 0.1}, None, ("prices.yaml", ""))
    for asked_for in ({"operations": OPERATIONS + 1}, {"are_named": True}):
        both = rank_by_ways(scenario, cards, TYPES, **asked_for)
        assert {each.name for each in both.offers} == {"a100_80gb", "rtx_4090"}
    assert rank_by_ways(scenario, cards, TYPES, prices=prices).offers[0].name == "rtx_4090"
    # With no step of another to hold it against, nothing is slow.
    assert not rank_by_ways(scenario, cards[1:], TYPES).unfit


@pytest.mark.parametrize("operations", [60, 100, 140, 200, 50_000])
def test_what_was_tried_before_is_neither_captured_nor_replayed_again(
    operations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but the plain loop; the ranking stays the same, however little may be tried, with a search too.

    What was tried counts the same, and so does the second batch, which only the first ranking captures.
    """
    batches: list[int] = []
    replayed: list[str] = []
    kept: dict[str, Tried] = defaultdict(dict)
    row = AnswerReplays.row

    def capture(batch_size: int) -> CapturedStep:
        batches.append(batch_size)
        return chain(batch_size)

    def noted(self: AnswerReplays, name: str, *how: Any) -> PolicyResult | str:  # noqa: ANN401
        replayed.append(name)
        return row(self, name, *how)

    def ranked() -> Ranking:
        scenario = asked(CapturedModel(chain(20_000), capture=capture), MIB)
        cards = card(5 * MIB // 4, "a100_80gb"), card(MIB), card(MIB // 2, "rtx_3090")
        return rank_by_ways(
            scenario, cards, TYPES, operations=operations, tried_before=lambda on: nullcontext(kept[on.server.name])
        )

    monkeypatch.setattr(AnswerReplays, "row", noted)
    first = ranked()
    assert (batches, "optimal" in replayed) == ([10_000], operations == 50_000)
    replayed.clear()
    assert ranked() == first
    assert (batches, replayed) == ([10_000], [])


def test_neighbours_equal_runs_on_those_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """base(p) copies nothing, at any bandwidth; `vdnn_dyn` plans for the memory that there is, won, and keeps its plan.

    With time for no replay what copies nothing is left; several GPUs have no neighbours. Where another policy won,
    `vdnn_dyn` is left out.
    """
    (tmp_path / "s.yaml").write_text(SCENARIO)
    scenario = read_scenario(tmp_path / "s.yaml", known_policies())
    result = run_scenario(scenario)
    found = {(each.policy, each.bandwidth): dict(each.iteration_s) for each in nearby(scenario, result)}
    there = scenario.server.gpu.memory_bytes
    base, everything = (result.results[at].metrics for at in (0, 1))
    assert list(dict.fromkeys(policy for policy, _ in found)) == ["vdnn_dyn", "base(p)", "vdnn_all(p)"]
    assert found["vdnn_dyn", 1.0][there] == result.results[2].metrics.iteration_s
    assert {found["base(p)", factor][there] for factor in (0.5, 1.0, 2.0, 4.0)} == {base.iteration_s}
    assert found["vdnn_all(p)", 1.0][there] == everything.iteration_s
    link = scenario.server.link
    twice = {"h2d_bytes_per_s": 2 * link.h2d_bytes_per_s, "d2h_bytes_per_s": 2 * link.d2h_bytes_per_s}
    again = run_scenario(changed(scenario, "server.link", **twice))
    assert found["vdnn_all(p)", 2.0][there] == again.results[1].metrics.iteration_s
    for policy, metrics in (("base(p)", base), ("vdnn_all(p)", everything)):
        for size, seconds in found[policy, 1.0].items():
            assert (seconds is not None) == (metrics.allocated_bytes <= size)
    monkeypatch.setattr(module, "MOST_OPERATIONS", 0)
    assert {each.policy for each in nearby(scenario, result)} == {"base(p)", "vdnn_dyn"}
    lost = changed(result.results[2], "metrics", iteration_s=9.0)
    beaten = replace(result, results=(*result.results[:2], lost))
    assert {each.policy for each in nearby(scenario, beaten)} == {"base(p)"}
    assert nearby(replace(scenario, gpus=2), result) == ()


@pytest.mark.parametrize("model", [MemoryModel.PYTORCH, AllocatorSettings(garbage_collection_threshold=0.3)])
def test_each_capacity_is_placed_for_itself(tmp_path: Path, model: MemoryChoice) -> None:
    """As a run on that memory places it: what fits into less need not fit into more where an allocator collects."""
    path = tmp_path / "s.yaml"
    path.write_text(SCENARIO.replace("alexnet, batch_size: 128", "tiny_residual, batch_size: 640"))
    read = read_scenario(path, known_policies())
    (policy,) = (each for each in read.policies if each.label == "vdnn_all(p)")

    def on(memory_bytes: int) -> Scenario:
        return changed(replace(read, memory_model=model, policies=(policy,)), "server.gpu", memory_bytes=memory_bytes)

    scenario = on(2**30)
    scenario = on(read.server.gpu.context_bytes + run_scenario(scenario).results[0].metrics.allocated_bytes)
    found = nearby(scenario, run_scenario(scenario))[0].iteration_s

    assert {seconds is None for _, seconds in found} == {True, False}
    for size, seconds in found:
        assert (seconds is None) == bool(simulator_of(on(size)).planned(policy).refusals)
