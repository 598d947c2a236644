"""Machines ranked by time and by cost."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.captured_ranks import sharded
from tests.machines import shipped_profile, shipped_server
from tests.nested import changed
from tests.overlaps import overlapping
from tests.refusals import refusal
from vdnnsim.analysis.machines import Offer, Order, Ranking, Unfit, cost_of
from vdnnsim.cost.trust import PEAKS_TOO_LOW, Basis, Trust
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.errors import ScenarioError
from vdnnsim.planning.deadline import Deadline
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.report.machines import findings, machine_rows, progress_row, shown, title
from vdnnsim.report.plots.machines import machines_figure
from vdnnsim.report.plots.style import house_style
from vdnnsim.scenario.captured import scenario_of
from vdnnsim.scenario.read import read_scenario
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study import policies_on_machine
from vdnnsim.study.machines import one_of_each_card, rank_machines, read_prices
from vdnnsim.study.points.resolve import Resolver

SCENARIO = """
schema_version: 1
workload: {network: tiny_linear, batch_size: 4}
hardware: rtx_3090
policies: [base(p), vdnn_all(p)]
"""


def read(folder: Path, text: str) -> Scenario:
    (folder / "s.yaml").write_text(text, encoding="utf-8")
    return read_scenario(folder / "s.yaml")


def offer(name: str, iteration_s: float, trust: Trust, cost: float | None = None) -> Offer:
    return Offer((name,), name, "base(p)", iteration_s, 1 / iteration_s, 10, 11, 12, 20, trust, cost=cost)


def test_costs_and_orders_of_machines() -> None:
    """A thousand steps of 3.6 s take an hour, on two GPUs at 5 an hour 10; an epoch of 400 at 4 a step is 100 steps."""
    assert cost_of(5.0, 2, 3.6, 4, None) == pytest.approx(10.0)
    assert cost_of(5.0, 2, 3.6, 4, 400) == pytest.approx(1.0)
    # Of times that differ by less than their errors.
    trust = Trust(Basis.CARRIED_OVER, error=0.25)
    rows = replace(offer("a", 1.0, trust), cost=3.0), offer("b", 1.0, trust)
    assert Ranking(rows, (), ("base(p)",), "EUR").order == (Order.CERTAIN, Order.CERTAIN)
    # At 25 % off, 1 s may be 1.33 s, and 1.2 s 0.96 s; at 10 % off, 2 s is 1.82 s at least.
    carried, fitted = Trust(Basis.CARRIED_OVER, error=0.25), Trust(Basis.FITTED, error=0.1)
    offers = (
        offer("a", 1.0, carried),
        offer("b", 1.2, carried),
        offer("c", 2.0, fitted),
        offer("d", 2.1, Trust(Basis.DATASHEET)),
        offer("e", 9.0, Trust(Basis.FITTED)),
    )
    ranking = Ranking(offers, (), ("base(p)",))
    assert ranking.order == (Order.CERTAIN, Order.WITHIN_ERROR, Order.CERTAIN, Order.CERTAIN, Order.UNKNOWN)
    said = findings(ranking)
    assert said[0].startswith("a and b differ by less than their expected errors")
    assert "2 fitted, 2 carried over, 1 datasheet" in said[1]
    assert "different origin" in said[1]


def test_labels_of_rows_stay_in_the_picture() -> None:
    """However long the name of the policy is, the axes shrink for it."""
    row = replace(offer("a", 1.0, Trust(Basis.FITTED)), policy="optimal(offload_optimizer=true, time_limit=10 s)")
    with house_style():
        figure = machines_figure(Ranking((row,), (), (row.policy,)), "tiny", "")
    (axes,) = figure.axes
    assert max(text.get_window_extent().x1 for text in axes.texts) <= figure.bbox.x1
    assert axes.get_window_extent().width > 0.2 * figure.bbox.width


@pytest.mark.parametrize(
    ("slowest_s", "written"),
    [
        (0.16, ["140", "150", "160", "170", "180"]),
        (0.6, ["200", "300", "400", "500", "600"]),
        (60.0, ["0.2", "0.5", "1", "2"]),
    ],
)
def test_an_axis_of_less_than_a_power_of_ten_has_ticks_enough(slowest_s: float, written: Sequence[str]) -> None:
    """From 160 ms / 1.15 = 139 ms to 184 ms, or to 690 ms; 60 s are more than ten times 160 ms."""
    rows = tuple(offer(str(each), each, Trust(Basis.FITTED)) for each in (0.16, slowest_s))
    with house_style():
        figure = machines_figure(Ranking(rows, (), ("base(p)",)), "tiny", "")
        figure.draw_without_rendering()
    (axes,) = figure.axes
    low, high = axes.get_xlim()
    found = [tick.label1.get_text() for tick in axes.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
    assert found[: len(written)] == written
    assert "logarithmic" in axes.get_xlabel()


def test_machines_are_ranked_by_time_and_by_cost(tmp_path: Path) -> None:
    """Two profiles of one card share a row; a machine with one GPU is none for a scenario on two."""
    scenario = read(tmp_path, SCENARIO)
    profiles = [*map(shipped_profile, ("t4", "p100_x2", "p100_x4"))]
    ranking = rank_machines(scenario, profiles)
    assert {each.names for each in ranking.offers} == {("p100_x2", "p100_x4"), ("t4",)}
    assert [each.iteration_s for each in ranking.offers] == sorted(each.iteration_s for each in ranking.offers)
    header, rows = shown(ranking, scenario.workload, 1)
    assert len(header) == len(rows[0])
    assert len(machine_rows(ranking)) == 2
    assert title(ranking, "tiny").startswith("3 of 3 machines hold tiny")
    figure = machines_figure(ranking, "tiny", "x")
    assert len(figure.axes) == 1
    assert not overlapping(figure)

    prices = tmp_path / "p.yaml"
    prices.write_text("schema_version: 1\ncurrency: EUR\nper_hour: {t4: 0.0001}\n", encoding="utf-8")
    priced = rank_machines(scenario, profiles, read_prices(prices))
    assert [each.name for each in priced.offers] == ["t4", "p100_x2, p100_x4"]
    assert priced.unit == "EUR per 1000 steps"
    assert priced.offers[0].cost == pytest.approx(0.0001 * 1000 * priced.offers[0].iteration_s / 3600)

    server = profiles[1].server
    two = replace(scenario, server=server, gpus=2)
    alone = rank_machines(two, profiles[:1])
    assert alone.unfit[0].reason == "has one GPU, and 2 are asked for"
    assert title(alone, "tiny") == "t4 does not hold tiny"


def test_searches_alone_end_at_the_deadline(tmp_path: Path) -> None:
    """Without time no search is tried, but all else is; a search is with a clock that stands still."""
    scenario = read(tmp_path, SCENARIO.replace("[base(p), vdnn_all(p)]", "[optimal]"))
    profiles = [*map(shipped_profile, ("t4", "p100_x2"))]
    over = Deadline.after(-1.0)
    ranking = rank_machines(scenario, profiles, deadline=over)
    (label,) = {each.label for each in scenario.policies}
    assert [each.reason for each in ranking.unfit] == [f"not tried in time: {label}"] * 2
    assert title(ranking, "tiny") == "None of 2 machines holds tiny, 2 not decided in time"
    slow = tuple(replace(each, is_slow=each.name == "t4") for each in ranking.unfit)
    one = "None of 2 machines holds tiny, 1 not decided in time, 1 not tried"
    assert title(replace(ranking, unfit=slow), "tiny") == one
    (said,) = findings(ranking)
    assert said == "not decided, try a longer --time-limit: t4, p100_x2"
    assert len(rank_machines(scenario, profiles, deadline=Deadline.after(1.0, lambda: 0.0)).offers) == 2
    assert len(rank_machines(read(tmp_path, SCENARIO), profiles, deadline=over).offers) == 2


def test_what_does_not_fit_a_large_card_is_not_planned_for_a_small_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """VGG-16 (1024) needs more than 80 GB under base(p), which memory does not decide: small cards are not planned."""
    scenario = read(tmp_path, SCENARIO.replace("tiny_linear, batch_size: 4", "vgg16, batch_size: 1024"))
    scenario = replace(scenario, policies=scenario.policies[:1])
    profiles = [*map(shipped_profile, ("titan_xp", "rtx_4090", "a100_80gb"))]
    planned: list[str] = []
    replayed = policies_on_machine._replayed  # noqa: SLF001

    def noted(asked: Scenario, *others: Any) -> Any:  # noqa: ANN401
        planned.append(asked.server.name)
        return replayed(asked, *others)

    monkeypatch.setattr(policies_on_machine, "_replayed", noted)
    ranking = rank_machines(scenario, profiles)
    assert planned == ["a100_80gb"]
    assert [each.name for each in ranking.unfit] == ["titan_xp", "rtx_4090", "a100_80gb"]
    assert all("base(p) would hold " in each.reason for each in ranking.unfit)
    assert not any(each.undecided for each in ranking.unfit)
    assert all(line.startswith("does not fit: ") for line in findings(ranking))


def test_the_smallest_cards_that_hold_it_come_behind_the_largest(tmp_path: Path) -> None:
    """VGG-16 (128) holds 13 GiB and more: once the largest card has said so, 12 GiB come last."""
    scenario = read(tmp_path, SCENARIO.replace("tiny_linear, batch_size: 4", "vgg16, batch_size: 128"))
    scenario = replace(scenario, policies=scenario.policies[:1])
    names = ("titan_xp", "a40", "rtx_4090", "a100_80gb")
    profiles = [*map(shipped_profile, names)]
    found: list[Offer | Unfit] = []
    rank_machines(scenario, profiles, first_where_it_fits=True, done=found.append)
    assert [each.name for each in found] == ["a100_80gb", "rtx_4090", "a40", "titan_xp"]
    assert progress_row(found[-1]) == "titan_xp: does not fit"
    assert progress_row(found[0]).startswith("a100_80gb: base(p), ")


def test_the_first_policy_is_taken_where_it_fits_else_the_fastest(tmp_path: Path) -> None:
    """Of AlexNet in 800 MiB: (p) does not fit; (m) does, and is faster than if it offloaded as well."""
    profile = shipped_profile("titan_x_maxwell")
    asked = SCENARIO.replace("tiny_linear, batch_size: 4", "alexnet, batch_size: 64")
    scenario = read(tmp_path, asked.replace("vdnn_all(p)]", "vdnn_all(m), base(m)]"))
    fastest, slowest, between = scenario.policies

    def taken(memory_bytes: int, *policies: Policy, first: bool = True) -> str:
        machine = changed(profile, "server.gpu", memory_bytes=memory_bytes)
        (found,) = rank_machines(replace(scenario, policies=policies), [machine], first_where_it_fits=first).offers
        return found.policy

    assert taken(800 * 2**20, fastest, slowest, between) == "base(m)"
    assert taken(800 * 2**20, slowest, fastest, between) == "vdnn_all(m)"
    assert taken(800 * 2**20, slowest, fastest, between, first=False) == "base(m)"
    assert taken(2**30, slowest, fastest, between, first=False) == "base(p)"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("currency: EUR\nper_hour: {t4: 1}", "'schema_version' is missing"),
        ("schema_version: 1\ncurrency: EUR\nper_hour: {t4: cheap}", "per_hour.t4: found 'cheap', expected a number"),
        ("schema_version: 1\ncurrency: EUR\nper_hour: {}", "per_hour: found an empty mapping"),
    ],
)
def test_wrong_prices_are_refused_in_a_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text, encoding="utf-8")
    assert message in refusal(ScenarioError, read_prices, path)


def test_a_captured_model_fits_with_the_margin_of_run() -> None:
    """What a rank of two takes fits memory that is larger by 5 %, and not by 2 %."""
    step = msgspec.structs.replace(sharded(), ranks=2)
    profile = shipped_profile("rtx_4090_x8")
    scenario = scenario_of(CapturedModel(step), "x", profile, (PyTorch(),))
    (taken,) = (each.held_bytes for each in rank_machines(scenario, [profile]).offers)

    def on(memory_bytes: int) -> Ranking:
        return rank_machines(scenario, [changed(profile, "server.gpu", memory_bytes=memory_bytes)])

    assert on(int(taken * (1 + PEAKS_TOO_LOW)) + 2).offers[0].held_bytes == taken
    (unfit,) = on(int(taken * 1.02)).unfit
    assert "of those tried" in unfit.reason
    # Less than CUDA's context leaves nothing for what the optimizer updates, and nothing is tried.
    (unfit,) = on(2**20).unfit
    assert unfit.reason.startswith("parameters, gradients and optimizer states alone take ")


def test_each_card_has_one_machine_with_enough_gpus() -> None:
    """Of one, two and four P100 those with two suffice for two GPUs, and those with four come nearest to eight.

    Of an H100 measured in float32 alone, and one with peaks of all types under another spelling, it is the latter.
    """
    names = ("h100_80gb_hbm3", "h100_sxm", "p100", "p100_x2", "p100_x4", "t4")
    profiles = [*map(shipped_profile, names)]

    def chosen(gpus: int) -> list[str]:
        return [each.server.name for each in one_of_each_card(profiles, gpus)]

    assert [chosen(gpus) for gpus in (1, 2, 3, 8)] == [
        ["h100_sxm", p100, "t4"] for p100 in ("p100", "p100_x2", "p100_x4", "p100_x4")
    ]
    # A card that is shipped in servers alone is none for one GPU.
    assert not one_of_each_card([shipped_profile("h100_x8_96gb")], 1)


def test_a_rank_needs_a_machine_for_all_ranks(tmp_path: Path) -> None:
    """Of one of two ranks: eight RTX 4090 have the other, and NCCL takes two channels of 9,633,792 B; one has not."""
    step = msgspec.structs.replace(sharded(), ranks=2)
    profiles = [*map(shipped_profile, ("rtx_4090", "rtx_4090_x8"))]
    scenario = scenario_of(CapturedModel(step), "x", profiles[1], (PyTorch(),))
    ranking = rank_machines(scenario, profiles)
    assert [each.names for each in ranking.offers] == [("rtx_4090_x8",)]
    assert [(each.name, each.reason) for each in ranking.unfit] == [
        ("rtx_4090", "has one GPU, expected 2 for so many ranks, as rtx_4090_x4 or rtx_4090_x8")
    ]
    resolved = Resolver(scenario, tmp_path).resolve({"hardware": "rtx_3090_x4", "policy": PyTorch()})
    assert resolved.scenario is not None
    alone = shipped_server("rtx_3090_x4").gpu
    assert resolved.scenario.server.gpu.context_bytes == alone.context_bytes + 2 * 9_633_792
    refused = Resolver(scenario, tmp_path).resolve({"hardware": "rtx_3090", "policy": PyTorch()})
    assert "has one GPU, expected 2" in refused.error
