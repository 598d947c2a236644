"""Pictures of a run: titles, labels with units, colours that differ, times that are kept."""

import struct
from dataclasses import replace

import pytest
from matplotlib.figure import Figure

from tests.nested import changed
from tests.toy import TOY_LIMITS, replay, toy_chain, toy_costs, toy_setting, toy_workload
from vdnnsim.analysis.memory import MemoryCurve, offloaded_curve
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.workload import Mode
from vdnnsim.plans.host_memory import Pool
from vdnnsim.plans.trace import Stall, StallCause
from vdnnsim.plans.training_plan import BufferKind
from vdnnsim.policies.base import Base
from vdnnsim.report.palette import KIND_COLORS, PHASE_COLORS, STALL_COLORS
from vdnnsim.report.plots import draw_pictures
from vdnnsim.report.plots.iteration import memory
from vdnnsim.report.plots.iteration.memory import memory_figure
from vdnnsim.report.plots.iteration.narrow_bars import visible
from vdnnsim.report.plots.iteration.timeline import magnified_window, timeline_figure, timeline_subject
from vdnnsim.report.plots.policies import drawn_rows, free_place, policies_figure


def texts(figure: Figure) -> list[str]:
    """All that is written in a figure, legends included."""
    written = [text.get_text() for text in figure.texts]
    for axes in figure.axes:
        written += [axes.get_xlabel(), axes.get_ylabel(), *(text.get_text() for text in axes.texts)]
        written += [label.get_text() for label in axes.get_yticklabels()]
        legend = axes.get_legend()
        if legend is not None:
            written += [legend.get_title().get_text(), *(text.get_text() for text in legend.get_texts())]
    for each in figure.legends:
        written += [text.get_text() for text in each.get_texts()]
    return written


def test_at_most_four_pictures_of_a_slide(result: ScenarioResult) -> None:
    """A PNG states its width and height as two big-endian numbers from byte 16 on."""
    pictures = draw_pictures(result)
    assert [each.name for each in pictures] == ["policies.png", "memory.png", "timeline.png"]
    assert {struct.unpack(">II", each.png[16:24]) for each in pictures} == {(1600, 900)}
    assert pictures[1].description == "dyn trains toy (1) in 60 of 1000 B at 75.0 % of the speed with unlimited memory"


def test_one_stream_that_is_always_busy_has_no_timeline(result: ScenarioResult, keep: PolicyResult) -> None:
    """`keep` copies nothing, and its kernels wait for nothing."""
    pictures = draw_pictures(replace(result, results=(keep,)))
    assert "timeline.png" not in [each.name for each in pictures]


def test_colours_envelopes_and_places_of_text() -> None:
    for colors, members in ((PHASE_COLORS, Phase), (KIND_COLORS, BufferKind), (STALL_COLORS, StallCause)):
        assert set(colors) == set(members)
        assert len(set(colors.values())) == len(members)
    # Columns of 2 s. The first sees 5 then 9, the second begins with the 1 that followed and sees nothing greater.
    # The third begins with 1 and sees 4; the fourth begins with 7 at that very time, so the 4 before does not count.
    curve = MemoryCurve((0.0, 0.5, 1.0, 4.5, 6.0), {BufferKind.WEIGHTS: (5, 9, 1, 4, 2)})
    thin = curve.envelope(8.0, 4)
    assert thin.times_s == (0.0, 2.0, 4.0, 6.0)
    assert thin.kinds == {BufferKind.WEIGHTS: (9, 1, 4, 2)}
    # A third wide, with lines at the capacity, the end of the bar and the mean.
    lines = (0.4, 0.9, 0.8), (0.1, 0.9, 0.8), (0.1, 0.5, 0.3), (0.1, 0.2, 0.3)
    assert [free_place(0.3, each) for each in lines] == [0.0, 0.1, 0.5, 0.3]
    assert free_place(0.95, (0.5, 0.6, 0.7)) == 0.0


def test_policies_side_by_side(result: ScenarioResult) -> None:
    figure = policies_figure(result)
    written = texts(figure)
    assert written[0] == "2 of 3 policies fit toy (1) into 1000 B, dyn at 75.0 % of the speed with unlimited memory"
    assert "speed, % of that with unlimited memory" in written
    assert "peak of allocated GPU memory, B" in written
    assert "capacity 1000 B" in written
    assert written.count("does not fit") == 1
    assert {"75.0 %", "100.0 %", "60 B", "1020 B"} <= set(written)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["move(m)", "keep(p)", "dyn"]
    hatched = [patch.get_hatch() or None for patch in figure.axes[1].patches]
    assert hatched == [None, "//", None]


def test_memory_of_gpu_and_host_in_panels_of_their_own(result: ScenarioResult, move: PolicyResult) -> None:
    """Of 1000 B 60 are in use, so that the capacity is far above; of 40 B of the host 10 hold what is offloaded."""
    figure = memory_figure(changed(result, "server.host", memory_bytes=40), move)
    written = texts(figure)
    assert written[0] == "move(m) trains toy (1) in 60 of 1000 B at 75.0 % of the speed with unlimited memory"
    assert written[1].startswith("Memory over one iteration of 8.00 s; 10 B are offloaded; ")
    assert {"time, s", "capacity 1000 B \N{UPWARDS ARROW}", "capacity 40 B", "forward", "backward"} <= set(written)
    gpu, host = figure.axes
    assert (gpu.get_ylabel(), host.get_ylabel()) == ("GPU memory, B", "CPU memory, B")
    assert gpu.get_ylim()[1] < 100
    assert host.get_ylim()[1] > 40
    assert host.collections[0].get_datalim(host.transData).y1 == 10
    legends = [axes.get_legend() for axes in figure.axes]
    assert [[each.get_text() for each in legend.get_texts()] for legend in legends if legend] == [
        ["workspace  30", "activations  10", "weights  20", "mean over time  31 B"],
        ["offloaded, up to  10 B"],
    ]


def test_what_offloads_nothing_has_one_panel(result: ScenarioResult, keep: PolicyResult) -> None:
    """1020 B are in use, beyond the capacity of 1000 B, whose line is drawn and named in the legend."""
    figure = memory_figure(result, keep)
    (axes,) = figure.axes
    assert axes.get_ylim()[1] > 1020
    assert {"capacity  1000 B", "time, s"} <= set(texts(figure))


def test_long_curves_are_thinned(result: ScenarioResult, move: PolicyResult, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_MANY_STEPS", 4)
    assert "each of 360 columns" in memory_figure(result, move).axes[1].get_xlabel()


def test_the_timeline(result: ScenarioResult, move: PolicyResult, keep: PolicyResult) -> None:
    figure = timeline_figure(result, move)
    written = texts(figure)
    assert figure.axes[1].get_xlabel() == "time, s, where copies are waited for most"
    assert timeline_figure(result, keep).axes[1].get_xlabel() == "time, s"
    assert written[0] == "move(m): the compute stream of toy (1) waits 50.0 % of the time"
    assert written[1] == ("one iteration of 8.00 s; waits for an offload 2.00 s, waits for a fetch on demand 2.00 s")
    assert {"time, s", "conv1", "fc", "map input", "2.00 s"} <= set(written)
    stalls = " (and its stalls)"
    assert written[-4:] == ["forward", "backward weights", f"offload{stalls}", f"fetch on demand{stalls}"]
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["compute stream", "stalls", "memory stream"]


def test_rows_without_a_bar_are_left_out(result: ScenarioResult, keep: PolicyResult) -> None:
    """It copies nothing and never waits."""
    for axes in timeline_figure(result, changed(keep, "trace", stalls=())).axes:
        assert [label.get_text() for label in axes.get_yticklabels()] == ["compute stream"]


def test_prefetch_host_stall_and_no_fit(result: ScenarioResult, ahead: PolicyResult, keep: PolicyResult) -> None:
    stalls = (Stall(2.75, 3.0, StallCause.HOST, 5, None), Stall(2.875, 3.0, StallCause.HOST, 5, None))
    row = changed(ahead, "trace", stalls=stalls)
    written = texts(timeline_figure(result, replace(row, refusal=keep.refusal)))
    assert ", replayed without a capacity because it does not fit; " in written[1]
    assert "prefetch (and its stalls)" in written
    assert "stall: waits for the host to issue" in written
    assert "250 ms" in written
    assert "125 ms" not in written


@pytest.mark.parametrize(
    ("convolutions", "mode", "ends"),
    [(7, Mode.TRAINING, (4.0, 14.0)), (50, Mode.TRAINING, (44.0, 60.0)), (11, Mode.INFERENCE, (0.0, 10.0))],
)
def test_the_window_without_waits(convolutions: int, mode: Mode, ends: tuple[float, float]) -> None:
    """Seven convolutions, fc and loss: 9 kernels of 1 s forward, then backward from 9 s on.

    Five kernels before the turn begin at 4 s; the fifth from the turn on ends at 14 s. Of inference ten are shown.
    Of 50 convolutions 52 kernels run forward and 102 backward; a tenth of 154 s is within eight on each side of 52 s.
    """
    workload = replace(toy_workload(toy_chain(convolutions)), mode=mode)
    costs = toy_costs(workload, {})
    limits = replace(TOY_LIMITS, device_bytes=10_000)
    window = magnified_window(replay(Base().plan(toy_setting(workload, costs)), costs, limits=limits))
    assert (window.start_s, window.end_s) == ends


def test_the_window_is_the_surroundings_of_the_longest_wait(move: PolicyResult, keep: PolicyResult) -> None:
    assert (magnified_window(move.trace).start_s, magnified_window(move.trace).end_s) == (0.0, 8.0)
    assert magnified_window(replace(keep.trace, spans=keep.trace.spans[:2])).end_s == 3.0


def test_narrow_bars_are_seen() -> None:
    """A pixel is 1: bars that touch are one of 0.2; one of 0.3 gets a pixel, and the next stops half way to the last.

    From 3 to 3.6 it could be 0.3 long, and is 0.4 already.
    """
    assert visible([(1.0, 0.3), (0.1, 0.1), (0.0, 0.1), (3.0, 0.4), (3.6, 2.0)], 1.0) == [
        (0.0, 0.5),
        (1.0, 1.0),
        (3.0, 0.4),
        (3.6, 2.0),
    ]
    assert visible([], 1.0) == []


def test_timeline_shows_the_fastest_policy_that_copies(
    result: ScenarioResult, move: PolicyResult, keep: PolicyResult, dyn: PolicyResult
) -> None:
    """And is named beside it, with its 6 s."""
    assert timeline_subject(result) is dyn
    quiet, slow = replace(keep, refusal=None), changed(move, "metrics", iteration_s=9.0)
    rivals = replace(result, results=(quiet, slow, move))
    assert timeline_subject(rivals) is move
    assert texts(timeline_figure(rivals, move))[1].endswith("on demand 2.00 s; keep(p) copies nothing: 6.00 s")
    assert timeline_subject(replace(result, results=(keep,))) is keep


def test_reasons_for_not_fitting_are_named(result: ScenarioResult, move: PolicyResult, keep: PolicyResult) -> None:
    gaps = replace(move, refusal=keep.refusal)
    host = changed(gaps, "refusal", pool=Pool.PINNED)
    written = texts(policies_figure(replace(result, results=(keep, gaps, host))))
    unfit = [each.removeprefix("does not fit") for each in written if each.startswith("does not fit")]
    assert unfit == ["", ": gaps", ": host memory"]


def test_the_fastest_policies_are_drawn(result: ScenarioResult, move: PolicyResult, keep: PolicyResult) -> None:
    """Eight do not fit, then twenty fit in 20 s down to 1 s; the 14 fastest are those of 14 s and less."""
    fitting = [
        replace(changed(move, "metrics", iteration_s=float(number)), policy=f"p{number}") for number in range(20, 0, -1)
    ]
    rows = (*(replace(keep, policy=f"k{number}") for number in range(8)), *fitting)
    assert [each.policy for each in drawn_rows(rows)] == [f"p{number}" for number in range(14, 0, -1)]
    assert [each.policy for each in drawn_rows(rows[:16])][:7] == ["k0", "k1", "k2", "k3", "k4", "k5", "p20"]
    figure = policies_figure(replace(result, results=rows))
    assert texts(figure)[1].endswith("; 14 of 28 policies, the others in results.csv")
    assert len(figure.axes[0].get_yticklabels()) == 14


def test_a_stall_that_is_too_short_to_be_seen_is_not_in_the_legend(result: ScenarioResult, move: PolicyResult) -> None:
    """Of 8 s, 5 ms are 0.06 % and seen; 3 ms are 0.04 % and not."""
    for length_s, seen in ((0.005, True), (0.003, False)):
        row = changed(move, "trace", stalls=(Stall(3.0, 3.0 + length_s, StallCause.HOST, 5, None),))
        written = texts(timeline_figure(result, row))
        assert ("stall: waits for the host to issue" in written) is seen


def test_bytes_in_host_memory_alone_over_time(move: PolicyResult) -> None:
    """10 B from 3 s, when the offload ends, to 5 s, when the prefetch begins."""
    assert offloaded_curve(move.trace) == ((3.0, 5.0), (10, 0))
