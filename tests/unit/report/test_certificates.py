"""What a certificate says of `move(m)`, whose iteration takes 8 s, and of `keep(p)`, which does not fit."""

import json
from dataclasses import replace

import pytest

from tests.nested import changed
from tests.unit.report.test_terminal import printed
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.plans.certificate import BoundClass, Certificate, SlowerKernel
from vdnnsim.report.certificates import bound_text, certificates, gap_text
from vdnnsim.report.run.folder import run_facts
from vdnnsim.report.run.page import page_text, result_table

CERTIFICATE = Certificate(
    bound_s=7.98,
    holds_for=BoundClass.OFFLOAD,
    offloaded=(("map a, part 1", 1024), ("map b", 512)),
    slower=(SlowerKernel("conv1", "forward", "gemm", "fft", 0.5, 2048),),
    levers=("conv1's FFT workspace competes with maps",),
    stays=("20 B of weights stay",),
)
"""8 s are 8 / 7.98 - 1 = 0.2506 % above the bound."""
SLOWER = ("layer", "phase", "chosen", "fastest", "lost_s", "saved_bytes")


def with_certificate(row: PolicyResult, certificate: Certificate) -> PolicyResult:
    return changed(row, "trace.plan", certificate=certificate)


def lines(result: ScenarioResult, row: PolicyResult, certificate: Certificate) -> tuple[str, ...]:
    return certificates(replace(result, results=(with_certificate(row, certificate),)))


def test_bound_gap_and_what_the_plan_does(result: ScenarioResult, move: PolicyResult) -> None:
    """0.2506 % is rounded up to 0.3 %, 1024 + 512 B are 1.5 KiB."""
    bound, moved, slower, *others = lines(result, move, CERTIFICATE)
    assert bound.startswith("move(m): lower bound 7.98 s, gap 0.3 %, ")
    assert moved == "move(m): offloads 2 activations, 1.50 KiB; recomputes nothing"
    assert "1 kernel runs slower" in slower
    assert slower.endswith("by 500 ms: forward of conv1 by gemm, not fft (+500 ms, 2.00 KiB less workspace)")
    assert others == ["move(m): conv1's FFT workspace competes with maps", "move(m): 20 B of weights stay"]
    # Long lists are cut.
    kernels = tuple(SlowerKernel(name, "forward", "gemm", "fft", 0.001, 1) for name in "abcd")
    bare = Certificate(8.0, BoundClass.ANY, recomputed=("a", "b", "c", "d", "e"), complete=False, slower=kernels)
    bound, moved, slower = lines(result, move, bare)
    assert "gap 0.00 %" in bound
    assert bound.endswith("; the time limit ended the search")
    assert moved == "move(m): offloads nothing; recomputes 5 layers: a, b, c and 2 more"
    assert "4 kernels run slower" in slower
    named = [f"forward of {each} by gemm, not fft (+1.00 ms, 1 B less workspace)" for each in "abc"]
    assert slower.endswith(f"by 4.00 ms: {', '.join(named)} and 1 more")
    # States on the host are named by their kind.
    kinds = ("optimizer states", 1024), ("weight gradients", 12)
    bound, moved = lines(result, move, Certificate(8.0, BoundClass.OFFLOAD_AND_STATES, on_host=kinds))
    assert bound.endswith("recompute nothing, with states and weight gradients on the host or not")
    assert "; 1.00 KiB of optimizer states and 12 B of weight gradients are on the host" in moved


@pytest.mark.parametrize(("bound_s", "is_loose"), [(4.1, True), (7.98, False)])
def test_a_bound_far_below_unlimited_memory_is_loose(bound_s: float, is_loose: bool) -> None:  # noqa: FBT001
    """8 s with unlimited memory lie 95 % above 4.1 s, 0.3 % above 7.98."""
    text = bound_text(Certificate(bound_s, BoundClass.OFFLOAD), 8.1, 8.0)
    assert text.endswith(", loose: even with unlimited memory a step takes 8.00 s") is is_loose


def test_a_plan_as_fast_as_unlimited_memory_is_above_nothing() -> None:
    """8 s are 315 % above 1.93 s, and yet no schedule is faster: the bound leaves out what the host adds."""
    text = bound_text(Certificate(1.93, BoundClass.OFFLOAD), 8.0, 8.0)
    assert text.startswith("as fast as with unlimited memory")


def test_unfit_policies_name_only_resident_memory(result: ScenarioResult, keep: PolicyResult) -> None:
    """Its 6 s are of a GPU without a capacity, for which the bound does not hold."""
    assert lines(result, keep, CERTIFICATE) == ("keep(p): 20 B of weights stay",)
    unfit = replace(result, results=(with_certificate(keep, CERTIFICATE),))
    assert run_facts(unfit)["results"][0]["certificate"]["gap_ratio"] is None


@pytest.mark.parametrize(
    ("gap", "text"),
    [
        *((0.0, "0.00 %"), (1e-17, "0.00 %"), (0.00001, "0.01 %"), (0.0004, "0.04 %"), (0.00091, "0.10 %")),
        *((0.001, "0.1 %"), (0.00301, "0.4 %"), (0.003, "0.3 %"), (0.2, "20.0 %"), (-0.01, "-1.00 %")),
    ],
)
def test_a_gap_is_never_rounded_in_its_favour(gap: float, text: str) -> None:
    """0.301 % is not within 0.3 %; what would be below the bound, which is a mistake, is not hidden."""
    assert gap_text(gap) == text


def test_terminal_page_and_manifest_have_it(result: ScenarioResult, move: PolicyResult, keep: PolicyResult) -> None:
    asked = replace(result, results=(with_certificate(move, CERTIFICATE), keep))
    line = f"- {certificates(asked)[0]}"
    assert line in printed(result_table(asked), width=400)
    assert line in page_text(asked, {}, ()).splitlines()
    first, second = json.loads(json.dumps(run_facts(asked)))["results"]
    assert "certificate" not in second
    assert first["certificate"] == {
        "bound_s": 7.98,
        "holds_for": BoundClass.OFFLOAD.value,
        "offloaded": [{"name": "map a, part 1", "bytes": 1024}, {"name": "map b", "bytes": 512}],
        "recomputed": [],
        "on_host": [],
        "slower": [dict(zip(SLOWER, ("conv1", "forward", "gemm", "fft", 0.5, 2048), strict=True))],
        "levers": ["conv1's FFT workspace competes with maps"],
        "stays": ["20 B of weights stay"],
        "complete": True,
        "memory": "",
        "gap_ratio": 8.0 / 7.98 - 1,
    }
