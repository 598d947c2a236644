from vdnnsim.claims.claim import Verdict
from vdnnsim.claims.row import ClaimRow
from vdnnsim.claims.vdnn2016.figures.figure import PaperFigure
from vdnnsim.claims.vdnn2016.report import page_text
from vdnnsim.report.chart import Chart

FIGURE = PaperFigure(
    stem="figure01",
    name="Figure 1",
    caption="Memory * of all.",
    header=("network",),
    rows=(("toy",),),
    chart=Chart("all [fits] <now>", "", ()),
    paper_says=("it fits (I).",),
    replay_shows=("it takes 5 B.", "it is idle."),
    differs=("not at all.",),
)


def claim(number: int, verdict: Verdict, reason: str = "") -> ClaimRow:
    return ClaimRow(f"v-{number}", "V-A", "a|b", "1 GiB", "2 GiB", "+100 %", verdict, verdict, reason, "")


def test_the_page_walks_from_figure_to_claims_to_the_rest() -> None:
    rows = (claim(1, Verdict.REPRODUCED), claim(2, Verdict.NOT_REPRODUCED, "a * b"))
    text = page_text((FIGURE,), rows, {"Readings": "as written\n"})
    assert text.startswith("# The figures of the vDNN paper, from simulation\n\n1 of 2 claims reproduced")
    assert "each with all of its numbers: 2, of which 1 are not met. Below are 1 figures" in text
    assert text.endswith(
        """\
## Figure 1

![all [fits] \\<now>](figure01.png)

Memory \\* of all. Numbers: [figure01.csv](figure01.csv).

**What the paper says**

- it fits (I).

**What the replay shows**

- it takes 5 B.
- it is idle.

**Where and why they differ**

- not at all.

## Every number that the paper states

| claim | where | metric | paper | replay | error | verdict |
| --- | --- | --- | --- | --- | --- | --- |
| v-1 | V-A | a\\|b | 1 GiB | 2 GiB | +100 % | reproduced |
| v-2 | V-A | a\\|b | 1 GiB | 2 GiB | +100 % | **not reproduced** |

### Why, and what to know of them

- `v-2` (**not reproduced**): a \\* b

## Readings

as written
"""
    )


def test_no_reasons_no_heading() -> None:
    assert "### Why" not in page_text((FIGURE,), (claim(1, Verdict.REPRODUCED),), {})
