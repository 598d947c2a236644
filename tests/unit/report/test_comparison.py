"""`move(m)` fits, `keep(p)` does not, `dyn` is as good as `move(m)`, and one policy has no plan.

`quick(p)` is what `move(m)` would be in 4 s and 100 B: faster, and with more memory.
"""

import csv
from dataclasses import replace
from io import StringIO

import pytest

from tests.captured_steps import chain
from tests.nested import changed
from tests.unit.report.test_terminal import printed
from vdnnsim.analysis.comparison import Comparison
from vdnnsim.analysis.results import Declined, PolicyResult, ScenarioResult
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.memory.settings import AllocatorSettings
from vdnnsim.report.comparison import COMPARED, comparison_rows, comparison_table, comparison_title, ranked
from vdnnsim.report.plots.policies import comparison_figure, draw_comparison
from vdnnsim.report.plots.style import house_style
from vdnnsim.report.result_table import csv_text


def like(row: PolicyResult, policy: str, seconds: float, allocated_bytes: int) -> PolicyResult:
    """Another policy, with another time and another maximum, which is all that its process takes."""
    sizes = {"allocated_bytes": allocated_bytes, "reserved_bytes": allocated_bytes}
    row = changed(row, "metrics", iteration_s=seconds, **sizes)
    return replace(row, policy=policy, trace=replace(row.trace, pool_bytes=allocated_bytes))


@pytest.fixture
def comparison(result: ScenarioResult, move: PolicyResult) -> Comparison:
    """Four with a plan, of which one does not fit, and one without."""
    rows = (*result.results, like(move, "quick(p)", 4.0, 100), like(move, "late(p)", 9.0, 100))
    return Comparison(replace(result, results=rows, declined=(Declined("picky", "expects two GPUs"),)))


def test_fitting_policies_are_ranked_by_time_and_memory(comparison: Comparison) -> None:
    """By time quick, move and dyn, late; by memory move and dyn with 60 B, then 100 B twice; late is beaten by all."""
    assert [(each.row.policy, each.time_rank, each.memory_rank, each.on_front) for each in comparison.standings] == [
        ("quick(p)", 1, 3, True),
        ("move(m)", 2, 1, True),
        ("late(p)", 4, 3, False),
    ]
    assert [each.policies for each in comparison.standings] == [("quick(p)",), ("move(m)", "dyn"), ("late(p)",)]
    assert [row.policy for row in comparison.unfit] == ["keep(p)"]
    # The columns are fixed.
    rows = list(csv.DictReader(StringIO(csv_text(COMPARED, comparison_rows(comparison)))))
    promised = """network batch_size policy algorithms outcome time_rank memory_rank on_front iteration_s samples_per_s
        allocated_bytes offloaded_bytes host_memory_bytes performance_ratio reserved_bytes process_bytes
        server_samples_per_s reason"""
    assert tuple(promised.split()) == COMPARED
    assert [row["policy"] for row in rows] == ["quick(p)", "move(m)", "dyn", "late(p)", "keep(p)", "picky"]
    assert [row["outcome"] for row in rows] == [*["fits"] * 4, "does not fit", "no plan"]
    numbers = "toy 1 move(m) m fits 2 1 true 8.0 0.125 60 10 10 0.75 60 60 0.125"
    assert list(rows[1].values()) == [*numbers.split(), ""]
    assert (rows[4]["allocated_bytes"], rows[4]["process_bytes"]) == ("1020", "1020")
    assert rows[4]["reason"].startswith("backward weights of conv1 asked for 990 B")
    assert (rows[5]["iteration_s"], rows[5]["process_bytes"], rows[5]["reason"]) == ("", "", "expects two GPUs")


def test_the_table_ranks_in_one_unit_a_column(comparison: Comparison) -> None:
    """A context of 200 B is in what nvidia-smi shows, beside the pool."""
    stated = changed(comparison, "result.server.gpu", context_bytes=200)
    assert printed(comparison_table(stated), width=94)[2:8] == [
        "                             time  images  allocated  reserved  process  rank by     speed/",
        "rank  policy          front     s   per s          B         B        B   memory  unlimited",
        "   1  quick(p)        *      4.00   0.125        100       100      300        3     75.0 %",
        "   2  move(m),        *      8.00   0.125         60        60      260        1     75.0 %",
        "      dyn (one plan)",
        "   4  late(p)                9.00   0.125        100       100      300        3     75.0 %",
    ]


def test_policies_that_just_fit_a_captured_model_are_marked(comparison: Comparison) -> None:
    """5 % above 100 B are more than 104 B, those above 60 B are 63 B: quick and late just fit, as `run` has it."""
    tight = changed(comparison, "result", captured=CapturedModel(chain()))
    tight = changed(tight, "result.server.gpu", memory_bytes=104)
    assert "4 of 5 policies fit toy (1) into 104 B, 2 of them just: from quick(p)" in comparison_title(tight)
    (fits,) = (each.cells for each in ranked(tight).columns if each.title == "fits")
    assert fits == ("just", "yes", "just")
    assert [row[4] for row in comparison_rows(tight)][:4] == ["just fits", "fits", "fits", "just fits"]
    assert "just: fits by its simulated peak, but peaks may be 5.0 % too low" in printed(comparison_table(tight), 200)
    alone = replace(tight.result, results=tight.result.results[-1:], declined=())
    assert comparison_title(Comparison(alone)).startswith("1 of 1 policy just fits toy (1) into 104 B: late(p)")


def test_what_is_reserved_ahead_beyond_need_is_said(result: ScenarioResult, move: PolicyResult) -> None:
    """60 B of blocks among 84 that are reserved; the column of the process has all of them."""
    ahead = replace(result, memory_model=AllocatorSettings(preallocated=True))
    ahead = replace(ahead, results=(changed(move, "trace", pool_bytes=84),))
    said = printed(comparison_table(Comparison(ahead)), 200)
    assert "whether it fits, ranks and pictures go by the 60 B that it needs" in " ".join(said)


def test_a_narrow_terminal_drops_columns(comparison: Comparison, result: ScenarioResult, move: PolicyResult) -> None:
    """Beside labels the columns take 4 + 5 + 4 + 6 + 9 + 7 + 7 + 9 = 51 characters, and 8 gaps of 2: 67 in all.

    Labels may claim 14. Of 78 characters, offload of 7 and its gap go, which leaves 20 to labels; this one has 24.
    """
    row = replace(move, policy="layrub_hybrid_twice_more")
    lines = printed(comparison_table(replace(comparison, result=replace(result, results=(row,)))), width=78)
    assert lines[2:6] == [
        "                                   time  images  allocated  rank by     speed/",
        "rank  policy                front     s   per s          B   memory  unlimited",
        "   1  layrub_hybrid_twice_  *      8.00   0.125         60        1     75.0 %",
        "      more",
    ]
    assert "not shown: offloaded; compare.csv has all" in lines


def test_unfit_policies_are_listed_with_reasons(comparison: Comparison) -> None:
    text = "\n".join(printed(comparison_table(comparison), width=200))
    assert "4 of 5 policies fit toy (1) into 1000 B: from quick(p) 4.00 s in 100 B to move(m) 8.00 s in 60 B; " in text
    assert "60 B; 1 without a plan." in text
    assert "- does not fit: keep(p): backward weights of conv1 asked for 990 B (workspace) of GPU memory" in text
    assert "- no plan: picky: expects two GPUs" in text


def test_a_single_policy_that_does_not_fit_is_named(result: ScenarioResult, keep: PolicyResult) -> None:
    """Of two, of which neither fits, the number is said."""
    alone, two = (replace(result, results=(keep,) * each) for each in (1, 2))
    assert comparison_title(Comparison(alone)).startswith("keep(p) does not fit")
    assert comparison_title(Comparison(two)).startswith("None of 2 policies fits")


def test_policies_without_a_plan_share_a_line(comparison: Comparison) -> None:
    declined = tuple(Declined(name, "expects two GPUs") for name in ("picky(m)", "picky(p)", "choosy"))
    text = printed(comparison_table(changed(comparison, "result", declined=declined)), 400)
    assert [line for line in text if "no plan" in line] == ["- no plan: picky(m, p), choosy; compare.csv says why"]


def test_the_picture_names_every_point_and_the_capacity(comparison: Comparison) -> None:
    """Equal points share a name; all five points are drawn, with the line at 1000 B."""
    with house_style():
        figure = comparison_figure(comparison, "title")
    written = [text.get_text() for text in figure.texts]
    (axes,) = figure.axes
    assert {"quick(p)", "move(m), dyn", "late(p)", "keep(p)"} <= set(written)
    assert [text.get_text() for text in axes.texts] == ["capacity 1000 B"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("peak of allocated GPU memory, B", "time of an iteration, s")
    assert draw_comparison(comparison, "title") == draw_comparison(comparison, "title")


def test_picture_of_policies_that_do_not_fit(result: ScenarioResult, keep: PolicyResult) -> None:
    nothing = replace(result, results=(), declined=(Declined("picky", "expects two GPUs"),))
    with house_style():
        figure = comparison_figure(Comparison(replace(result, results=(keep,))), "title")
        empty = comparison_figure(Comparison(nothing), "title")
    assert "keep(p)" in [text.get_text() for text in figure.texts]
    assert empty.axes[0].texts[0].get_text() == "capacity 1000 B"
