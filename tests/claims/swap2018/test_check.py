import msgspec

from vdnnsim.claims.claim import Claim, Verdict
from vdnnsim.claims.swap2018.metrics import METRICS
from vdnnsim.claims.swap2018.runs import ServerRuns
from vdnnsim.claims.swap2018.stated import Place

TWO = Place("p100_x2", 2)
SWAP = "swap(tensorflow, interval=2)"


def claim(**changes: object) -> Claim:
    """Swap halves the speed of AlexNet (16) on two GPUs within 10 %, unless changed."""
    fields = {
        "id": "c-1",
        "where": "I",
        "metric": "throughput_ratio",
        "networks": ["alexnet(16)"],
        "policy": SWAP,
        "baseline": "none(tensorflow)",
        "gpus": 2,
        "expected": 0.5,
        "tolerance": 0.1,
    }
    return msgspec.convert(fields | changes, Claim)


def test_a_ratio_of_throughputs_is_that_of_iterations_the_other_way_round(swap_runs: ServerRuns) -> None:
    none_s, swap_s = (swap_runs.iteration_s(TWO, "alexnet", 16, policy) for policy in ("none(tensorflow)", SWAP))
    stated = claim(expected=none_s / swap_s)

    row = METRICS.check(stated, swap_runs, "p100_x2")

    assert none_s < swap_s
    assert row.verdict is Verdict.REPRODUCED
    assert row.error == "+0.0%"
    assert row.simulated == f"{none_s / swap_s:.1%}"
    assert row.scenario == "scenarios/swap2018_2gpus.yaml"
    assert METRICS.check(claim(expected=1.2 * none_s / swap_s), swap_runs, "p100_x2").verdict is Verdict.NOT_REPRODUCED


def test_largest_batches_and_what_they_run_at(swap_runs: ServerRuns) -> None:
    """Of AlexNet on one Titan Xp, which the claim names instead of the machine of the file."""
    found = swap_runs.largest(Place("titan_xp", 1), "alexnet", "none(m)")
    alone = {"networks": ["alexnet"], "policy": "none(m)", "hardware": "titan_xp", "gpus": 1, "baseline": ""}

    batch = METRICS.check(claim(metric="largest_batch", unit="images", **alone), swap_runs, "p100_x2")
    speed = METRICS.check(claim(metric="largest_batch_throughput", unit="images/s", **alone), swap_runs, "p100_x2")
    same = alone | {"baseline": "none(m)"}
    ratio = METRICS.check(claim(metric="largest_batch_ratio", unit="times", **same), swap_runs, "p100_x2")

    assert batch.simulated == f"{found.batch_size} images"
    assert speed.simulated == f"{found.images_per_s:.0f} images/s"
    assert ratio.simulated == "1.00 times"
    assert batch.scenario == "scenarios/swap2018_1gpu.yaml"


def test_a_metric_names_the_gpus_if_several_and_what_it_is_over() -> None:
    assert METRICS.describe(claim()) == (
        "throughput, alexnet(16), 2 GPUs, swap(tensorflow, interval=2) over none(tensorflow)"
    )
    assert METRICS.describe(claim(metric="largest_batch", gpus=1, baseline="")) == (
        "largest batch, alexnet(16), swap(tensorflow, interval=2)"
    )
