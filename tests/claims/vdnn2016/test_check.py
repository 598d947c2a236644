import msgspec
import pytest

from vdnnsim.claims.check import COLUMNS, is_met, summary
from vdnnsim.claims.claim import Claim, Verdict, read_claims, read_network
from vdnnsim.claims.vdnn2016.metrics import METRICS
from vdnnsim.claims.vdnn2016.runs import ALL_TEN, CONVENTIONAL, VERY_DEEP, VdnnRuns
from vdnnsim.errors import InputError


def claim(**changes: object) -> Claim:
    """AlexNet (128) needs 1.1 GiB within 10 % under base(p), unless changed."""
    stated = {"metric": "max_memory", "expected": 1.1, "unit": "GiB", "tolerance": 0.1, **changes}
    fields = {"id": "c-1.size", "where": "I", "networks": ["alexnet(128)"], "policy": "base(p)", **stated}
    return msgspec.convert({key: value for key, value in fields.items() if value is not None}, Claim)


@pytest.mark.parametrize(
    ("changes", "low", "high"),
    [
        ({"expected": 10.0, "tolerance": 0.1}, 9.0, 11.0),
        ({"expected": 10.0, "tolerance": None}, 10.0, 10.0),
        ({"expected": 0.5, "points": 0.05}, 0.45, 0.55),
        ({"expected": None, "range": [1, 2]}, 1.0, 2.0),
        ({"expected": None, "at_least": 60}, 60.0, float("inf")),
        ({"expected": None, "at_most": 4.2}, float("-inf"), 4.2),
    ],
)
def test_the_bounds_of_a_claim(changes: dict[str, object], low: float, high: float) -> None:
    """A relative tolerance, none, points of a share, a range, one bound; the bounds themselves are allowed."""
    stated = claim(**changes)
    assert stated.bounds() == pytest.approx((low, high))
    assert is_met(stated, stated.bounds()[0])
    assert not is_met(stated, high + 1e-6 if high < float("inf") else low - 1e-6)


def test_groups_of_networks() -> None:
    """Six of Fig. 11, four of V-E, all ten, the six that v-mem-6 names, and names with their batch size."""
    exceeding = next(each for each in read_claims("vdnn2016").claims if each.id == "v-mem-6")
    assert isinstance(exceeding.expected, str)

    for named, networks in {
        "conventional": CONVENTIONAL,
        "very_deep": VERY_DEEP,
        "all": ALL_TEN,
        "exceeding": tuple(map(read_network, exceeding.expected.split())),
        ("vgg16(64)",): (("vgg16", 64),),
    }.items():
        assert METRICS.networks(claim(networks=named)) == networks


def test_a_row_has_expected_and_simulated_values(vdnn_runs: VdnnRuns) -> None:
    """AlexNet (128) takes 1.18 GiB, 7.6 % above 1.1: within 10 %, not within 1 %."""
    met, missed = METRICS.check(claim(), vdnn_runs, ""), METRICS.check(claim(tolerance=0.01), vdnn_runs, "")

    assert (met.expected, met.simulated, met.error) == ("1.10 GiB within 10%", "1.18 GiB", "+7.6%")
    assert met.verdict is Verdict.REPRODUCED
    assert missed.verdict is Verdict.NOT_REPRODUCED
    assert met.scenario == "scenarios/alexnet.yaml"
    two = claim(networks=["alexnet(128)", "overfeat(128)"], over="max")
    assert METRICS.check(two, vdnn_runs, "").scenario == "2 networks"
    assert dict(zip(COLUMNS, met.cells, strict=True))["verdict"] == "reproduced"


SHARE = {"metric": "max_reduction", "expected": 0.0, "points": 0.5, "unit": "", "tolerance": None}


@pytest.mark.parametrize(
    ("changes", "expected", "error"),
    [
        ({"expected": None, "range": [2, 3]}, "2.00 GiB to 3.00 GiB", "outside"),
        ({"expected": None, "at_least": 1}, "at least 1.00 GiB", ""),
        ({"expected": None, "at_most": 1000}, "at most 1000 GiB", ""),
        ({"metric": "fits", "expected": "yes", "unit": ""}, "yes", ""),
        ({"metric": "fits", "expected": "no", "unit": ""}, "no", "outside"),  # it does
        (SHARE, "0.0% within 50 points", "+37.3 points"),
    ],
)
def test_ranges_bounds_words_and_shares(
    vdnn_runs: VdnnRuns, changes: dict[str, object], expected: str, error: str
) -> None:
    """Ranges and bounds have no error in numbers; shares have one in points, here of base against itself."""
    row = METRICS.check(claim(**changes), vdnn_runs, "")
    assert (row.expected, row.error) == (expected, error)


def test_a_metric_names_network_policy_and_reading() -> None:
    described = METRICS.describe(claim(metric="gpu_memory", networks="very_deep", over="max", reading="whole"))
    assert described == "maximum memory, most of very deep, base(p) (whole)"


def test_the_summary_counts_claims_and_names_what_moved(vdnn_runs: VdnnRuns) -> None:
    """Rows c-1.size and c-1.more are one claim, which is missed if one of its rows is; numbers of tables are none."""
    met, missed, by_input, table_met, table_missed = (
        METRICS.check(claim(id=name, tolerance=tolerance, reason=reason), vdnn_runs, "")
        for name, tolerance, reason in (
            *(("c-1.size", 0.1, ""), ("c-1.more", 0.01, ""), ("c-2", 0.1, "by construction: an input")),
            *(("t-2.120", 0.2, ""), ("t-2.130", 0.01, "")),
        )
    )

    assert summary([met]) == "1 of 1 claims reproduced"
    assert summary([met, missed]).startswith("0 of 1 claims reproduced")
    assert summary([met, missed]).endswith("other than recorded: c-1.more (not reproduced)")
    assert summary([met, by_input]) == "2 of 2 claims reproduced, 1 of them by construction"
    assert summary([met, table_met]) == "1 of 1 claims reproduced; 1 of 1 numbers of its tables"
    assert "; 1 of 2 numbers of its tables; other than" in summary([met, table_met, table_missed])


def test_an_unknown_paper_is_refused() -> None:
    with pytest.raises(InputError, match=r"'vdnn2017' .* did you mean 'vdnn2016'"):
        read_claims("vdnn2017")
