"""`keep(p)` takes 1020 B where there are 1000 B; `move(m)` takes 60 B."""

from dataclasses import replace

from vdnnsim.analysis.results import PolicyResult, ScenarioResult, Shortage
from vdnnsim.dnn.workload import Mode
from vdnnsim.plans.host_memory import Pool
from vdnnsim.plans.training_plan import ProfilingPass
from vdnnsim.report.findings import caption, comparison, headline, refusals, verdict
from vdnnsim.report.run.page import profiling


def test_the_caption_says_what_was_run(result: ScenarioResult) -> None:
    assert caption(result) == "toy, batch 1, float16, training on toy GPU with 1000 B (ideal memory model)"


def test_equally_fast_policies_are_all_named(result: ScenarioResult, move: PolicyResult, dyn: PolicyResult) -> None:
    assert result.fastest_fitting == (move, dyn)
    assert verdict(result) == (
        "Of 3 policies, move(m) and dyn are the fastest that fit: 8.00 s per iteration, 0.125 images/s. That is 75.0 % "
        "of the speed of the oracular baseline, with at most 60 B of GPU memory where the baseline would take 1020 B, "
        "and with 10 B of pinned host memory."
    )


def test_the_verdict_on_a_slower_rival(result: ScenarioResult, move: PolicyResult, keep: PolicyResult) -> None:
    slower = replace(move, policy="slow", metrics=replace(move.metrics, iteration_s=9.0))
    assert verdict(replace(result, results=(slower, move))).startswith(
        "Of 2 policies, move(m) is the fastest that fits: "
    )
    assert verdict(replace(result, results=(keep, move))).startswith("Of 2 policies, move(m) alone fits: 8.00 s")
    assert verdict(replace(result, results=(move,))).startswith("Of 1 policy, move(m) alone fits: 8.00 s")


def test_the_verdict_when_none_fits(result: ScenarioResult, keep: PolicyResult) -> None:
    none = replace(result, results=(keep,))
    assert verdict(none) == "keep(p) does not fit toy (1) into 1000 B; it would take 1020 B."
    assert comparison(none) == "keep(p) does not fit toy (1) into 1000 B"


def test_the_comparison_names_the_policy_that_decided_by_trials(
    result: ScenarioResult, move: PolicyResult, dyn: PolicyResult
) -> None:
    assert comparison(result) == "2 of 3 policies fit toy (1) into 1000 B, dyn at 75.0 % of the oracular speed"
    slower = replace(dyn, metrics=replace(dyn.metrics, iteration_s=9.0))
    assert comparison(replace(result, results=(move, slower))).endswith("B, move(m) at 75.0 % of the oracular speed")
    assert comparison(replace(result, results=(move,))).startswith("1 of 1 policy fits toy (1) into 1000 B, move(m)")


def test_pictures_show_the_policy_that_the_text_calls_best_else_the_last(
    result: ScenarioResult, move: PolicyResult, keep: PolicyResult, dyn: PolicyResult
) -> None:
    """Of equals that is the one that decided by trials, but not where another takes less time or less memory."""
    fast = replace(move, metrics=replace(move.metrics, iteration_s=7.0))
    small = replace(move, metrics=replace(move.metrics, max_memory_bytes=59))
    assert result.subject is dyn
    assert replace(result, results=(dyn, fast)).subject is fast
    assert replace(result, results=(dyn, small)).subject is small
    assert replace(result, results=(keep, move)).subject is move
    assert replace(result, results=(keep,)).subject is keep


def test_headlines(result: ScenarioResult, move: PolicyResult, keep: PolicyResult) -> None:
    """Where both sizes have one unit it is written once."""
    assert headline(result, move) == "move(m) trains toy (1) in 60 of 1000 B at 75.0 % of the oracular speed"
    assert headline(result, keep) == "keep(p) does not fit toy (1) into 1000 B: it would take 1020 B"
    larger = replace(result, server=replace(result.server, gpu=replace(result.server.gpu, memory_bytes=2**20)))
    assert " in 60 B of 1.00 MiB at " in headline(larger, move)
    inference = replace(result, workload=replace(result.workload, mode=Mode.INFERENCE))
    assert headline(inference, move).startswith("move(m) runs toy (1)")


def test_a_refusal_names_its_policy(result: ScenarioResult) -> None:
    (line,) = refusals(result)
    assert line.startswith("keep(p): backward weights of conv1 asked for 990 B (workspace) of GPU memory; 970 B of")


def test_the_cost_of_profiling(result: ScenarioResult, move: PolicyResult) -> None:
    """8 s + 2 s = 10 s, which is 10 / 8 = 1.25 iterations."""
    assert profiling(result) == (
        (
            "dyn settled on all(m) after 2 passes: all(m) fits (8.00 s), base(p) does not fit (2.00 s); 10.0 s in all, "
            "1.2 iterations' time, spent once"
        ),
        "trying every algorithm of every convolution once takes 12.0 s, as in any framework that picks the fastest",
    )
    assert profiling(replace(result, results=(move,))) == ()


def test_a_network_without_convolutions_has_no_algorithms_to_try(result: ScenarioResult) -> None:
    """What is left of the two lines is what dyn says of its passes."""
    (line,) = profiling(replace(result, algorithm_profiling_s=0.0))
    assert line.startswith("dyn settled on all(m)")


def test_among_equally_fast_ones_the_one_with_least_memory_counts(
    result: ScenarioResult, move: PolicyResult, dyn: PolicyResult
) -> None:
    small = replace(move, policy="small", metrics=replace(move.metrics, max_memory_bytes=50))
    both = replace(result, results=(move, small))
    assert both.leader is small
    assert both.subject is small
    assert "move(m) and small are the fastest that fit: " in verdict(both)
    assert "baseline, by small with at most 50 B of GPU memory" in verdict(both)
    assert replace(result, results=(move, dyn)).leader is dyn
    assert replace(result, results=(move, replace(move, policy="like it"))).leader is move


def test_gaps_are_named_where_what_is_in_use_would_fit(
    result: ScenarioResult, move: PolicyResult, keep: PolicyResult
) -> None:
    """60 B at once are refused on 1000 B; 1020 B are too many anyway."""
    gaps = replace(move, refusal=keep.refusal)
    none = replace(result, results=(keep, gaps))
    assert verdict(none) == (
        "None of 2 policies fits toy (1) into 1000 B; move(m) would take the least, 60 B, which would fit but for the "
        "gaps between its buffers that the ideal memory model leaves."
    )
    assert comparison(none) == "None of 2 policies fits toy (1) into 1000 B, 1 because of gaps between buffers"
    assert comparison(replace(result, results=(gaps, gaps))).endswith(", all because of gaps between buffers")
    assert headline(none, gaps) == "move(m) does not fit toy (1) into 1000 B: it takes 60 B and gaps between buffers"


def test_host_memory_is_named_where_it_is_short(result: ScenarioResult, move: PolicyResult, keep: PolicyResult) -> None:
    assert keep.refusal is not None
    host = replace(move, refusal=replace(keep.refusal, pool=Pool.PINNED, capacity_bytes=5))
    none = replace(result, results=(host,))
    assert verdict(none) == (
        "move(m) does not fit toy (1) into 1000 B; it would take 60 B, and to offload more than the "
        "5 B of pinned host memory that there are."
    )
    assert comparison(none) == "move(m) does not fit toy (1) into 1000 B, for want of host memory"
    assert headline(none, host) == "move(m) does not fit toy (1) into 5 B of host memory: it offloads more"


def test_equal_refusals_share_a_line(result: ScenarioResult, keep: PolicyResult) -> None:
    assert keep.refusal is not None
    other = replace(keep, policy="other", refusal=replace(keep.refusal, free_bytes=960, largest_free_bytes=960))
    second, third = replace(keep, policy="second"), replace(keep, policy="third")
    lines = refusals(replace(result, results=(keep, other, second, third)))
    assert [line.partition(":")[0] for line in lines] == ["keep(p), second and third", "other"]


def test_passes_that_cost_nothing_or_little(result: ScenarioResult, dyn: PolicyResult) -> None:
    """An iteration takes 8 s; 0.1 s are less than a tenth of it."""

    def line(*passes: ProfilingPass) -> str:
        plan = replace(dyn.trace.plan, passes=passes)
        return profiling(replace(result, results=(replace(dyn, trace=replace(dyn.trace, plan=plan)),)))[0]

    assert line(ProfilingPass("all(m)", fits=False, cost_s=0.0)) == (
        "dyn settled on all(m) after 1 pass: all(m) does not fit (at once); no time is spent"
    )
    assert line(ProfilingPass("all(m)", fits=False, cost_s=0.1)).endswith(
        "does not fit (100 ms); 100 ms in all, less than a tenth of an iteration's time, spent once"
    )


def test_what_is_lacking(move: PolicyResult, keep: PolicyResult) -> None:
    assert keep.refusal is not None
    assert move.shortage is None
    assert keep.shortage is Shortage.GPU
    assert replace(move, refusal=keep.refusal).shortage is Shortage.GAPS
    assert replace(keep, refusal=replace(keep.refusal, pool=Pool.PINNED)).shortage is Shortage.HOST


def test_all_of_the_memory_is_not_too_much(keep: PolicyResult) -> None:
    assert replace(keep, metrics=replace(keep.metrics, max_memory_bytes=1000)).shortage is Shortage.GAPS
    assert replace(keep, metrics=replace(keep.metrics, max_memory_bytes=1001)).shortage is Shortage.GPU
