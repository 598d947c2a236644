from dataclasses import replace

from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.dnn.workload import Mode
from vdnnsim.report.findings import (
    caption,
    comparison,
    fastest_fitting,
    headline,
    profiling,
    refusals,
    subject,
    verdict,
)


def test_the_caption_says_what_was_run(result: ScenarioResult) -> None:
    assert caption(result) == "toy, batch 1, float16, training on toy GPU with 1000 B (ideal memory model)"


def test_equally_fast_policies_are_all_named(result: ScenarioResult, move: PolicyResult, dyn: PolicyResult) -> None:
    assert fastest_fitting(result) == (move, dyn)
    assert verdict(result) == (
        "Of 3 policies, move(m) and dyn are the fastest that fit: 8.00 s per iteration, 0.125 images/s. That is 75.0 % "
        "of the speed of the oracular baseline, with at most 60 B of GPU memory where the baseline would take 1020 B, "
        "and with 10 B of pinned host memory."
    )


def test_the_verdict_on_a_slower_rival(result: ScenarioResult, move: PolicyResult, keep: PolicyResult) -> None:
    slower = replace(move, policy="slow", metrics=replace(move.metrics, iteration_s=9.0))
    assert verdict(replace(result, results=(slower, move))).startswith("Of 2 policies, move(m) is the fastest that fit")
    assert verdict(replace(result, results=(keep, move))).startswith("Of 2 policies, move(m) alone fits: 8.00 s")
    assert verdict(replace(result, results=(move,))).startswith("Of 1 policy, move(m) alone fits: 8.00 s")


def test_the_verdict_when_none_fits(result: ScenarioResult, keep: PolicyResult) -> None:
    none = replace(result, results=(keep,))
    assert verdict(none) == "None of 1 policy fits toy (1) into 1000 B; keep(p) asks for the least, 1020 B."
    assert comparison(none) == "None of 1 policy fits toy (1) into 1000 B"


def test_the_comparison_names_the_policy_that_decided_by_trials(
    result: ScenarioResult, move: PolicyResult, dyn: PolicyResult
) -> None:
    assert comparison(result) == "2 of 3 policies fit toy (1) into 1000 B, dyn at 75.0 % of the oracular speed"
    slower = replace(dyn, metrics=replace(dyn.metrics, iteration_s=9.0))
    assert comparison(replace(result, results=(move, slower))).endswith("B, move(m) at 75.0 % of the oracular speed")
    assert comparison(replace(result, results=(move,))).startswith("1 of 1 policy fits toy (1) into 1000 B, move(m)")


def test_pictures_show_the_policy_that_decided_by_trials_else_the_fastest_else_the_last(
    result: ScenarioResult, move: PolicyResult, keep: PolicyResult, dyn: PolicyResult
) -> None:
    assert subject(result) is dyn
    assert subject(replace(result, results=(keep, move))) is move
    assert subject(replace(result, results=(keep,))) is keep


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
