"""Sentences of a result: `keep(p)` takes 1020 B where there are 1000 B; `move(m)` takes 60 B."""

from dataclasses import replace

import msgspec
import pytest

from tests.captured_steps import chain
from tests.nested import changed
from vdnnsim.analysis.results import PolicyResult, ScenarioResult, Shortage
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.workload import Mode
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.memory.settings import AllocatorSettings
from vdnnsim.plans.host_memory import Pool
from vdnnsim.plans.training_plan import ProfilingPass
from vdnnsim.report.findings import budgets, caption, comparison, conclusions, headline, refusals, report_title, verdict
from vdnnsim.report.run.page import profiling


def faster(row: PolicyResult, seconds: float, allocated_bytes: int = 60, policy: str = "") -> PolicyResult:
    row = changed(row, "metrics", iteration_s=seconds, allocated_bytes=allocated_bytes)
    return replace(row, policy=policy or row.policy)


@pytest.fixture
def gaps(move: PolicyResult, keep: PolicyResult) -> PolicyResult:
    """60 B at once that are refused on 1000 B."""
    return replace(move, refusal=keep.refusal)


@pytest.fixture
def host(move: PolicyResult, keep: PolicyResult) -> PolicyResult:
    """A policy for which 5 B of pinned memory are too few."""
    return replace(move, refusal=changed(keep, "refusal", pool=Pool.PINNED, capacity_bytes=5).refusal)


def test_caption_headlines_and_the_best(result: ScenarioResult, move: PolicyResult, dyn: PolicyResult) -> None:
    assert caption(result) == "toy, batch 1, float16, training on toy GPU with 1000 B (ideal memory model)"
    # The comparison names the best.
    assert (
        comparison(result)
        == "2 of 3 policies fit toy (1) into 1000 B, dyn at 75.0 % of the speed with unlimited memory"
    )
    assert " B, move(m) at 75.0 % of" in comparison(replace(result, results=(move, faster(dyn, 9.0))))
    assert comparison(replace(result, results=(move,))).startswith("1 of 1 policy fits toy (1) into 1000 B, move(m)")
    # Headlines.
    assert (
        headline(result, move) == "move(m) trains toy (1) in 60 of 1000 B at 75.0 % of the speed with unlimited memory"
    )
    larger = changed(result, "server.gpu", memory_bytes=2**20)
    assert " in 60 B of 1.00 MiB at " in headline(larger, move)
    assert headline(changed(result, "workload", mode=Mode.INFERENCE), move).startswith("move(m) runs toy (1)")


def test_the_verdict_names_the_fastest(result: ScenarioResult, move: PolicyResult, keep: PolicyResult) -> None:
    assert result.fastest_fitting == (move, result.results[2])
    text = verdict(result)
    assert text.startswith("Of 3 policies, move(m) and dyn are the fastest that fit: 8.00 s per iteration, 0.125 ")
    parts = ("75.0 % of the speed", "most 60 B of GPU memory", "takes 1020 B", "10 B of pinned host memory")
    assert all(part in text for part in parts)
    for rows, which in (
        ((faster(move, 9.0, policy="slow"), move), "Of 2 policies, move(m) is the fastest that fits: "),
        ((keep, move), "Of 2 policies, move(m) alone fits: 8.00 s"),
        ((move,), "Of 1 policy, move(m) alone fits: 8.00 s"),
    ):
        assert verdict(replace(result, results=rows)).startswith(which)


@pytest.mark.parametrize(
    ("memory_bytes", "how"), [(62, "It just fits, for peaks may be 5.0 % too low: "), (63, "It fits: ")]
)
def test_the_fastest_of_a_captured_model_may_just_fit(
    result: ScenarioResult, move: PolicyResult, memory_bytes: int, how: str
) -> None:
    """60 B and 5 % are 63 B. That a slower policy takes 10 B does not count; with it the verdict says so last."""
    small = faster(changed(move, "trace", pool_bytes=10), 9.0, 10, "small")
    captured = replace(result, captured=CapturedModel(chain()), results=(move, small))
    captured = changed(captured, "server.gpu", memory_bytes=memory_bytes)
    assert captured.fits_surely
    (text,) = conclusions(captured)
    assert text.startswith("Of 2 policies, move(m) is the fastest that fits")
    assert text.endswith("It just fits, for peaks may be 5.0 % too low.") is how.startswith("It just")
    (text,) = conclusions(replace(captured, results=(move,)))
    assert text.startswith(f"{how}move(m) takes 60 B of the {memory_bytes} B of toy GPU, 8.00 s")


def test_pictures_show_the_leader_or_the_least_memory(
    result: ScenarioResult, move: PolicyResult, keep: PolicyResult, dyn: PolicyResult
) -> None:
    fast, small = faster(move, 7.0), faster(move, 8.0, 59, "small")
    for rows, shown in (((dyn, fast), fast), ((dyn, small), small), ((keep, move), move), ((keep,), keep)):
        assert replace(result, results=rows).subject is shown
    assert result.subject is dyn
    both = replace(result, results=(move, small))
    assert both.leader is small
    assert "move(m) and small are the fastest that fit: " in verdict(both)
    assert "small has at most 59 B of GPU memory" in verdict(both)
    assert replace(result, results=(move, replace(move, policy="like it"))).leader is move


def test_scarce_memory_is_named(
    result: ScenarioResult, keep: PolicyResult, gaps: PolicyResult, host: PolicyResult
) -> None:
    assert [row.shortage for row in (result.results[0], keep, gaps, host)] == [
        *(None, Shortage.GPU, Shortage.GAPS, Shortage.HOST)
    ]
    assert faster(keep, 6.0, 1000).shortage is Shortage.GAPS, "all of the memory is not too much"
    assert faster(keep, 6.0, 1001).shortage is Shortage.GPU
    alone, short = replace(result, results=(keep,)), replace(result, results=(host,))
    assert verdict(alone) == "keep(p) does not fit toy (1) into 1000 B; it would take 1020 B."
    assert headline(alone, keep) == "keep(p) does not fit toy (1) into 1000 B: it would take 1020 B"
    none = replace(result, results=(keep, gaps))
    assert "move(m) would take the least, 60 B, which would fit but for the gaps" in verdict(none)
    assert comparison(none) == "None of 2 policies fits toy (1) into 1000 B, 1 because of gaps between buffers"
    assert comparison(replace(result, results=(gaps, gaps))).endswith(", all because of gaps between buffers")
    assert headline(none, gaps).endswith("it would take 60 B, for gaps between its buffers")
    assert "it would take 60 B, and to offload more than the 5 B of pinned host memory" in verdict(short)
    assert comparison(short).endswith("into 1000 B, for want of host memory")
    assert headline(short, host).endswith("into 5 B of host memory: it offloads more")


def test_equal_refusals_share_a_line(result: ScenarioResult, keep: PolicyResult) -> None:
    other = replace(changed(keep, "refusal", free_bytes=960, largest_free_bytes=960), policy="other")
    second, third = replace(keep, policy="second"), replace(keep, policy="third")
    lines = refusals(replace(result, results=(keep, other, second, third)))
    assert [line.partition(":")[0] for line in lines] == ["keep(p), second and third", "other"]
    assert "backward weights of conv1 asked for 990 B (workspace) of GPU memory; 970 B of" in lines[0]


def test_the_cost_of_trials(result: ScenarioResult, move: PolicyResult, dyn: PolicyResult) -> None:
    """8 s + 2 s = 10 s, which is 10 / 8 = 1.25 iterations; 0.1 s are less than a tenth of one."""
    passes, algorithms = profiling(result)
    assert passes.startswith("dyn settled on all(m) after 2 passes: all(m) fits (8.00 s), base(p) does not fit (2.00")
    assert "10.0 s in all, 1.2 iterations' time" in passes
    assert "12.0 s" in algorithms
    assert profiling(replace(result, results=(move,))) == ()
    assert profiling(replace(result, algorithm_profiling_s=0.0)) == (passes,)
    for cost_s, said in ((0.0, "(at once); no time is spent"), (0.1, "less than a tenth of an iteration's time")):
        row = changed(dyn, "trace.plan", passes=(ProfilingPass("all(m)", fits=False, cost_s=cost_s),))
        assert said in profiling(replace(result, results=(row,)))[0]


def test_memory_that_a_policy_needs_of_device_and_host(result: ScenarioResult, keep: PolicyResult) -> None:
    """`dyn` has a pool of 60 B, and 10 B on the host; the process has 7 B there, and 100 of 1,000 may be pinned.

    What does not fit needs its pool without a capacity, gaps included, as `pretend` and `machines` say too.
    """
    known = changed(result, "server.host", process_bytes=7, pinnable_bytes=100)
    pytorch = replace(known, memory_model=MemoryModel.PYTORCH)
    assert "dyn needs: GPU 60 B of 1000 B, host 17 B of 1000 B, pinned 10 B of 100 B" in budgets(pytorch)
    assert "host 10 B of 1000 B, pinned 10 B of 100 B" in budgets(known)
    assert "for each GPU: GPU 60 B of 1000 B, host 10 B of 500 B, pinned" in budgets(replace(result, gpus=2))
    grown = changed(keep, "trace", pool_bytes=2000)
    assert "keep(p) needs: GPU 1.95 KiB where there are 1000 B, host 0 B" in budgets(replace(result, results=(grown,)))
    rows = tuple(changed(each, "trace", peaks_in_search=True) for each in result.results)
    assert "while cuDNN searches for convolutions" in budgets(replace(result, results=rows))


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("/data/my_model.py:make", "my_model"),
        ("models/my.py:Llama", "Llama"),
        ("timm:convnext_base", "convnext_base"),
        ("transformers:meta-llama/Llama-2-7b", "Llama-2-7b"),
        ("meta-llama/Meta-Llama-3-8B", "Meta-Llama-3-8B"),
        ("weights/tiny/config.json", "tiny"),
    ],
)
def test_a_captured_model_is_called_by_a_name_and_not_by_a_path(result: ScenarioResult, model: str, name: str) -> None:
    workload = CapturedWorkload.of(msgspec.structs.replace(chain(), model=model))
    captured = replace(result, workload=workload)
    assert report_title(captured) == f"{name}, batch {workload.batch_size}"
    assert caption(captured).startswith(f"{name}, batch ")
    assert report_title(result) == result.name


def test_what_is_reserved_ahead_is_not_what_a_policy_needs(result: ScenarioResult, move: PolicyResult) -> None:
    """60 B of blocks and a context of 20 B fit 84 B surely, though all 84 are reserved and the process has 104."""
    ahead = replace(result, captured=CapturedModel(chain()), results=(changed(move, "trace", pool_bytes=84),))
    ahead = changed(ahead, "server.gpu", memory_bytes=84, context_bytes=20)
    assert "just fits" in verdict(ahead)
    ahead = replace(ahead, memory_model=AllocatorSettings(preallocated=True))
    assert "just fits" not in verdict(ahead)
    assert "Its process needs 80 B; 84 B are reserved ahead for its blocks." in verdict(ahead)
    assert ahead.needs[0] == ("GPU", 80, 84)
