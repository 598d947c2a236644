"""What a certificate says of `move(m)`, whose iteration takes 8 s, and of `keep(p)`, which does not fit."""

import json
from dataclasses import replace

import pytest

from tests.unit.report.test_terminal import printed
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.plans.certificate import BoundClass, Certificate, SlowerKernel
from vdnnsim.report.certificates import certificates, certified, gap_text
from vdnnsim.report.run.folder import run_manifest
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


def with_certificate(row: PolicyResult, certificate: Certificate) -> PolicyResult:
    """The same, planned by a planner."""
    return replace(row, trace=replace(row.trace, plan=replace(row.trace.plan, certificate=certificate)))


def test_what_is_proven_and_what_the_plan_does(result: ScenarioResult, move: PolicyResult) -> None:
    """0.2506 % is within 0.3 %, 1024 + 512 B are 1.5 KiB."""
    assert certificates(replace(result, results=(with_certificate(move, CERTIFICATE),))) == (
        (
            "move(m): certified: within 0.3 % of the best schedule of this order that computes nothing again, which "
            "takes 7.98 s or more"
        ),
        "move(m): offloads 2 maps, 1.50 KiB; computes nothing again",
        (
            "move(m): 1 kernel runs slower than the fastest algorithm would, by 500 ms: forward of conv1 by gemm, not "
            "fft (+500 ms, 2.00 KiB less workspace)"
        ),
        "move(m): conv1's FFT workspace competes with maps",
        "move(m): 20 B of weights stay",
    )


def test_a_certificate_of_little(result: ScenarioResult, move: PolicyResult) -> None:
    """Of what is not done nothing is said but that; of many names the first three and how many more."""
    bare = Certificate(8.0, BoundClass.ANY, recomputed=("a", "b", "c", "d", "e"), complete=False)
    assert certificates(replace(result, results=(with_certificate(move, bare),))) == (
        (
            "move(m): certified: within 0.00 % of the best schedule of this order, with any map offloaded or computed "
            "again, which takes 8.00 s or more; the time limit ended the search"
        ),
        "move(m): offloads nothing; computes 5 layers again: a, b, c and 2 more",
    )
    kernels = tuple(SlowerKernel(name, "forward", "gemm", "fft", 0.001, 1) for name in "abcd")
    (line,) = [
        line
        for line in certificates(replace(result, results=(with_certificate(move, replace(bare, slower=kernels)),)))
        if "kernels" in line
    ]
    assert line.startswith("move(m): 4 kernels run slower than the fastest algorithm would, by 4.00 ms: forward of a")
    assert line.endswith("forward of c by gemm, not fft (+1.00 ms, 1 B less workspace) and 1 more")


def test_what_is_on_the_host_while_no_kernel_wants_it_is_said_by_its_kind(
    result: ScenarioResult, move: PolicyResult
) -> None:
    kinds = ("optimizer states", 1024), ("weight gradients", 12)
    moving = Certificate(8.0, BoundClass.OFFLOAD_AND_STATES, on_host=kinds)
    assert certificates(replace(result, results=(with_certificate(move, moving),))) == (
        (
            "move(m): certified: within 0.00 % of the best schedule of this order that computes nothing again, with "
            "states and weight gradients on the host or not, which takes 8.00 s or more"
        ),
        (
            "move(m): offloads nothing; computes nothing again; 1.00 KiB of optimizer states and 12 B of weight "
            "gradients are on the host while no kernel wants them"
        ),
    )


def test_of_what_does_not_fit_only_what_stands_in_the_way(result: ScenarioResult, keep: PolicyResult) -> None:
    """Its 6 s are of a GPU without a capacity, which the bound does not speak of."""
    unfit = replace(result, results=(with_certificate(keep, CERTIFICATE),))
    assert certificates(unfit) == ("keep(p): 20 B of weights stay",)
    assert json.loads(run_manifest(unfit, ()))["results"][0]["certificate"]["gap_ratio"] is None


@pytest.mark.parametrize(
    ("gap", "text"),
    [
        (0.0, "0.00 %"),
        (1e-17, "0.00 %"),
        (0.00001, "0.01 %"),
        (0.0004, "0.04 %"),
        (0.00091, "0.10 %"),
        (0.001, "0.1 %"),
        (0.00301, "0.4 %"),
        (0.003, "0.3 %"),
        (0.2, "20.0 %"),
        (-0.01, "-1.00 %"),
    ],
)
def test_a_gap_is_never_rounded_in_its_favour(gap: float, text: str) -> None:
    """0.301 % is not within 0.3 %; what would be below the bound, which is a mistake, is not hidden."""
    assert gap_text(gap) == text


def test_a_bound_of_nothing_has_no_gap() -> None:
    """An iteration without kernels."""
    nothing = Certificate(0.0, BoundClass.OFFLOAD)
    assert certified(nothing, 0.0).startswith("certified: within 0.00 % of the best schedule of this order")


def test_where_a_reader_finds_it(result: ScenarioResult, move: PolicyResult, keep: PolicyResult) -> None:
    """On the terminal, in a section of `report.md`, and with every number in `run.json`."""
    asked = replace(result, results=(with_certificate(move, CERTIFICATE), keep))
    line = certificates(asked)[0]
    assert f"- {line}" in printed(result_table(asked), width=400)
    lines = page_text(asked, {}, ()).splitlines()
    heading = lines.index("## How near is it to the best possible, and why?")
    assert lines[heading + 2] == f"- {line}"
    first, second = json.loads(run_manifest(asked, ()))["results"]
    assert "certificate" not in second
    assert first["certificate"] == {
        "bound_s": 7.98,
        "holds_for": BoundClass.OFFLOAD.value,
        "offloaded": [{"name": "map a, part 1", "bytes": 1024}, {"name": "map b", "bytes": 512}],
        "recomputed": [],
        "on_host": [],
        "slower": [
            {
                "layer": "conv1",
                "phase": "forward",
                "chosen": "gemm",
                "fastest": "fft",
                "lost_s": 0.5,
                "saved_bytes": 2048,
            }
        ],
        "levers": ["conv1's FFT workspace competes with maps"],
        "stays": ["20 B of weights stay"],
        "complete": True,
        "gap_ratio": 8.0 / 7.98 - 1,
    }
