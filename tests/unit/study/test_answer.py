"""What is tried for a captured model that does not fit, and that following it helps."""

from dataclasses import replace
from itertools import count

import msgspec
import pytest
from markupsafe import escape

from tests.answers import MIB, answered, asked, blocks_of, of, with_storage
from tests.captured_steps import chain
from vdnnsim.analysis.answer import Answer, Change, Way, limit_bytes, ranked
from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.step import BufferKind
from vdnnsim.dnn.training_loops import Loop
from vdnnsim.planning.deadline import CLOCKS, Deadline
from vdnnsim.report.document import Bullets, Code, Document, Heading, Prose, Table
from vdnnsim.report.findings import conclusions
from vdnnsim.report.html import fragment
from vdnnsim.report.markdown import page
from vdnnsim.report.run.browser import html_text
from vdnnsim.report.run.page import page_text, result_table
from vdnnsim.report.tables.answer import answer_notes, first_line, progress_row, sentences
from vdnnsim.report.tables.training_script import script_begin
from vdnnsim.report.terminal import rendered
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.study.answer_replays import held_bytes
from vdnnsim.study.answer_searches import _compared
from vdnnsim.study.replay_budget import ReplayBudget
from vdnnsim.units import format_bytes, format_seconds


@pytest.fixture(scope="module", name="large")
def _large() -> tuple[Scenario, ScenarioResult, Answer]:
    """A million bytes of maps and more of 20,000 images, on a card of 1 MiB."""
    scenario = asked(CapturedModel(chain(20_000), chain(10_000)), MIB)
    return scenario, *answered(scenario)


def test_held_bytes_are_weights_states_and_gradients() -> None:
    """The chain has three weights of 4 B and as many gradients; of states there are 8 B here."""
    step = with_storage(chain(2), BufferKind.OPTIMIZER_STATE, 8)
    assert held_bytes(chain(2)) == 3 * 4 + 3 * 4
    assert held_bytes(step) == 3 * 4 + 3 * 4 + 8


def test_what_is_tried_is_ranked_with_commands(large: tuple[Scenario, ScenarioResult, Answer]) -> None:
    """Policies run in what leaves 5 %: 998,644 B, of which MiB are whole below a GiB, so none."""
    scenario, result, made = large
    assert limit_bytes(scenario.server.gpu) == 0
    assert [way.policy for way in made.ways if way.change is Change.POLICY] == [
        *("pytorch(p)", "checkpoint(p)", "save_on_cpu(p)", "vdnn_all(p)", "memonger(p)", "vdnn_conv(p)", "swap(p)"),
        "optimal",
    ]
    blocks = blocks_of(result)
    codes = [each.text for each in blocks if isinstance(each, Code)]
    assert codes[0] == script_begin(result)
    assert codes[1].splitlines()[0].startswith("for start in range(0, 20000, ") or codes[1].startswith("vdnnsim apply ")
    assert len(codes) == 1 + 3
    assert len(sentences(result)) == len(made.ways) + len(made.notes)
    assert all("  " in progress_row(way) for way in made.ways)
    assert rendered(Document(blocks))
    assert f"```\n{codes[0]}\n```" in page(blocks)
    assert f"<pre>{escape(codes[0])}</pre>" in fragment(blocks)


def test_where_nothing_fits_the_answer_is_the_first_line(
    large: tuple[Scenario, ScenarioResult, Answer],
) -> None:
    """On the terminal and the page, above the table with its commands; the policies and all caveats stand below."""
    _, result, made = large
    row, best = result.results[0], made.best
    assert best is not None
    line = first_line(result)
    held, needs = (format_bytes(each) for each in (best.held_bytes, row.held_bytes(result.server.gpu)))
    assert line.startswith(f"Does not fit into 1.00 MiB: pytorch(p) needs {needs}. Fits with ")
    assert line.endswith(f": {format_seconds(best.iteration_s)} a step, {held}.")
    first, heading, table, *_ = shown = result_table(result).blocks
    assert first == Prose(line, strong=True)
    assert heading == Heading("What would make it fit?")
    assert isinstance(table, Table)
    kinds = [type(each) for each in shown]
    assert kinds.index(Code) < kinds.index(Bullets)
    assert page_text(result, {}, ()).splitlines()[2] == f"**{line}**"
    assert "<h1>Does not fit into 1.00 MiB: pytorch(p) needs " in html_text(result)
    assert "<h1>chain" not in html_text(result)


def test_where_host_memory_ends_the_answer_says_how_to_state_it(
    large: tuple[Scenario, ScenarioResult, Answer],
) -> None:
    """By a setting or a profile; not where no row lacks it."""
    _, result, made = large
    way = next(way for way in made.ways if way.policy == "save_on_cpu(p)")
    for reason, is_said in (("needs more than the 64.0 GiB of host memory", True), ("", False)):
        ways = (msgspec.structs.replace(way, reason=reason),)
        shown = str(answer_notes(replace(result, answer=Answer(ways))))
        assert ("`--set host.memory=128GiB`" in shown) is is_said
    reason = "needs more than the 64.0 GiB of host memory"
    for nbytes, why in ((MIB + 5, f"5 B too much; {reason}"), (MIB - 5, reason)):
        assert progress_row(msgspec.structs.replace(way, reason=reason, held_bytes=nbytes)).endswith(f"  {why}")
    cut = msgspec.structs.replace(way, reason=reason, held_bytes=MIB - 5, cut_short=True)
    assert progress_row(cut).endswith(f"  {reason}; search cut short")


def test_the_first_line_says_what_else_runs_out_or_that_nothing_fits(
    large: tuple[Scenario, ScenarioResult, Answer],
) -> None:
    """A card is named behind; where a part was not tried, so far; of two policies the one with less memory."""
    _, result, made = large
    card = next(way for way in made.ways if way.change is Change.CARD)
    rest = [way for way in made.ways if not (way.fits or way.is_tight or way.untried)]
    for ways, said in (
        ([*rest, card], f"Nothing that was tried fits; {card.hardware} is a card that holds it."),
        ([msgspec.structs.replace(rest[0], untried=True)], "Nothing that was tried so far fits."),
    ):
        assert first_line(replace(result, answer=Answer(tuple(ways)))).endswith(f". {said}")
    both = run_scenario(asked(CapturedModel(chain(20_000), chain(10_000)), MIB, "pytorch", "save_on_cpu"))
    assert "the least of 2 policies, needs " in first_line(both)
    (said,) = conclusions(both)
    assert said.startswith("None of 2 policies fits chain (20000) into 1.00 MiB; save_on_cpu(p) would take the least, ")


def test_the_batch_of_the_answer_fits_and_one_more_does_not(large: tuple[Scenario, ScenarioResult, Answer]) -> None:
    (way,) = of(large[2], Change.BATCH)
    assert way.fits
    for batch, fits in ((way.batch_size, True), (way.batch_size + 1, False)):
        row = run_scenario(asked(CapturedModel(chain(batch)), MIB)).results[0]
        assert (row.metrics.allocated_bytes * 1.05 <= MIB) is fits


def test_micro_batches_of_the_answer_take_what_a_replay_of_all_takes(
    large: tuple[Scenario, ScenarioResult, Answer],
) -> None:
    """The fewest that fit, of those into which 20,000 can be divided; time and memory as of all of them in a row."""
    scenario, _, made = large
    (way,) = of(made, Change.MICRO_BATCHES)
    assert way.fits
    assert way.batch_size * way.rounds == 20_000
    assert scenario.captured is not None
    workload = scenario.captured.workload(way.batch_size, way.rounds)
    row = run_scenario(replace(scenario, workload=workload)).results[0]
    assert row.metrics.iteration_s == pytest.approx(way.iteration_s, rel=1e-9)
    assert row.held_bytes(scenario.server.gpu) == way.held_bytes
    fewer = next(n for n in range(way.rounds - 1, 0, -1) if 20_000 % n == 0)
    least = scenario.captured.workload(20_000 // fewer, fewer)
    assert run_scenario(replace(scenario, workload=least)).results[0].metrics.allocated_bytes * 1.05 > MIB


def test_policies_are_replayed_in_the_pool_of_apply() -> None:
    """Where `pytorch` lacks a byte, one that offloads its maps fits, holds less, and is a command."""
    model = CapturedModel(chain(200_000), chain(100_000))
    needed = run_scenario(asked(model, 64 * MIB)).results[0].metrics.allocated_bytes
    result, made = answered(asked(model, needed))
    (way,) = of(made, Change.POLICY, "save_on_cpu(p)")
    assert way.fits
    assert way.is_applied
    assert of(made, Change.POLICY)[0].is_tight
    memory = limit_bytes(result.server.gpu) // MIB
    commands = [each.text for each in blocks_of(result) if isinstance(each, Code)]
    command = next(each for each in commands if each.startswith(f"vdnnsim apply --memory {memory}MiB"))
    assert command.endswith("-- python train.py  # your script")


def test_faster_ways_are_shown_where_a_slow_policy_fits() -> None:
    """In a tenth more than save_on_cpu takes: it fits, micro-batches are faster; what is slower is not shown."""
    model = CapturedModel(chain(200_000), chain(100_000))
    needed = run_scenario(asked(model, 64 * MIB, "save_on_cpu")).results[0].metrics.allocated_bytes
    result, made = answered(asked(model, int(needed * 1.1), "pytorch", "save_on_cpu"))
    assert (result.fits_surely, result.may_be_faster) == (True, True)
    heading, table, *_ = blocks_of(result)
    assert isinstance(heading, Heading)
    assert isinstance(table, Table)
    assert heading.text == "What would be faster?"
    names, fits = table.columns[1].cells, table.columns[2].cells
    assert names[0] == "2 micro-batches of 100000 images under pytorch(p)"
    assert "save_on_cpu(p)" in names
    assert set(fits) == {"yes"}
    assert len(names) < len(made.ways)


def test_ways_are_compared_with_what_surely_fits() -> None:
    """In 2 % more than `pytorch` takes it just fits; micro-batches, which are slower, are faster than save_on_cpu."""
    model = CapturedModel(chain(200_000), chain(100_000))
    needed = run_scenario(asked(model, 64 * MIB)).results[0].metrics.allocated_bytes
    result, _ = answered(asked(model, int(needed * 1.02), "pytorch", "save_on_cpu"))
    assert (result.leader, result.surely_fastest) == tuple(result.results)
    table = next(each for each in blocks_of(result) if isinstance(each, Table))
    rows = dict(zip(table.columns[1].cells, table.columns[2].cells, strict=True))
    assert rows["2 micro-batches of 100000 images under pytorch(p)"] == "yes"
    assert rows["pytorch(p)"] == "just"


def test_that_nothing_faster_was_tried_or_found_is_said() -> None:
    """On 64 MiB both policies fit; on the card above, as if nothing had been faster, no table is empty."""
    model = CapturedModel(chain(2_000), chain(1_000))
    result = run_scenario(asked(model, 64 * MIB, "pytorch", "save_on_cpu"))
    assert "pytorch(p) fits, and recomputes and offloads nothing" in page(blocks_of(result))
    assert "pytorch was not asked about" in page(blocks_of(run_scenario(asked(model, 64 * MIB, "save_on_cpu"))))
    for fastest in ("pytorch", "base"):
        assert blocks_of(run_scenario(asked(model, 64 * MIB, fastest))) == ()
    (row, _) = result.slowest
    slower = Way(
        change=Change.POLICY,
        policy="x",
        batch_size=2_000,
        hardware="x",
        memory_bytes=64 * MIB,
        iteration_s=2 * row.metrics.iteration_s,
    )
    (said,) = blocks_of(replace(result, answer=Answer((slower,))))
    assert said == Bullets(
        ("Nothing faster was found. What else was tried (1) does not fit or is slower than pytorch(p).",)
    )


def test_results_that_differ_rank_by_time_and_a_cut_search_says_so() -> None:
    """Autocast of 1 s comes before a policy of 2 s, and a batch of half the images, twice as fast a step, behind both.

    A search that found 3 s where a policy of its class takes 2 was cut short.
    """
    ways = [
        Way(change=change, policy=policy, loop=loop, batch_size=batch, hardware="x", memory_bytes=MIB, iteration_s=s)
        for change, policy, loop, batch, s in (
            (Change.BATCH, "pytorch(p)", Loop(), 4, 0.1),
            (Change.POLICY, "checkpoint(p)", Loop(), 8, 2.0),
            (Change.POLICY, "pytorch(p)", Loop(precision="amp_bfloat16"), 8, 1.0),
        )
    ]
    assert [way.iteration_s for way in ranked(ways)] == [1.0, 2.0, 0.1]
    done = [msgspec.structs.replace(way, is_applied=True) for way in ways]
    found = [
        _compared(msgspec.structs.replace(ways[1], policy="optimal", iteration_s=seconds, cut_short=True), done)
        for seconds in (1.5, 3.0)
    ]
    assert [(way.fits, way.untried, way.cut_short) for way in found] == [(True, False, True), (False, True, True)]
    assert "than that of checkpoint(p)" in found[1].reason


def test_a_policy_without_a_plan_is_a_row() -> None:
    scenario = asked(CapturedModel(chain(20_000), chain(10_000)), MIB, "accumulate(p, steps=2)", "caffe", "pytorch")
    _, made = answered(scenario)
    assert [way.reason.partition(":")[0] for way in made.ways if way.policy.startswith(("accumulate", "caffe"))] == [
        "no plan",
        "no plan",
    ]
    assert len(made.ways) > 8


def test_what_was_not_tried_is_a_row_that_a_later_budget_fills(large: tuple[Scenario, ScenarioResult, Answer]) -> None:
    """Without budget the plain loop and a card alone; with more and more all that much budget finds."""
    scenario, _, whole = large
    budget = ReplayBudget(0)
    result, made = answered(scenario, budget)
    assert [way.change for way in made.ways if way.iteration_s > 0] == [Change.POLICY, Change.CARD]
    assert sum(way.untried for way in made.ways) == len(made.ways) - 2
    text = page(blocks_of(result))
    assert f"{len(made.ways) - 2} more ways were not tried" in text
    assert "--time-limit '60 s'" in text
    assert "| optimal " not in text
    for operations in (100, 1000, 100_000):
        known = len(budget.known)
        budget = ReplayBudget(operations, budget.known)
        _, made = answered(scenario, budget)
        assert len(budget.known) > known
    assert budget.sufficed
    assert made == whole


def test_nothing_else_is_tried_after_a_deadline(large: tuple[Scenario, ScenarioResult, Answer]) -> None:
    """With 100,000 operations, which without a deadline are enough for all."""
    budget = ReplayBudget(100_000, deadline=Deadline(((lambda: 1.0, 1.0),)))
    _, made = answered(large[0], budget)
    assert [way.change for way in made.ways if way.iteration_s > 0] == [Change.POLICY]
    assert not budget.sufficed


def test_a_search_counts_its_steps_and_reads_no_clock_for_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """With states on the host, under a clock on which a thousand readings take a second, and one ten times as fast."""
    step = with_storage(chain(20_000), BufferKind.OPTIMIZER_STATE, 32 * MIB)
    found = []
    for reading_s in (1e-3, 1e-2):
        monkeypatch.setitem(CLOCKS, "cpu", count(step=reading_s).__next__)
        _, made = answered(asked(CapturedModel(step), 8 * MIB))
        found.append(made)
    assert found[0] == found[1]
    assert found[0].ways[-1].policy.startswith("optimal(offload_optimizer")
