"""The pictures of several GPUs, on the result that `pair` works out."""

from dataclasses import replace

import pytest

from tests.unit.report.test_plots import texts
from vdnnsim.analysis.results import ScenarioResult
from vdnnsim.analysis.several_gpus import link_uses
from vdnnsim.hardware.topology import Hop, Sharing, Way
from vdnnsim.report.plots.iteration.memory import memory_figure
from vdnnsim.report.plots.iteration.several_gpus import copy_look, drawn_links, gpus_figure, links_figure, links_title
from vdnnsim.report.plots.iteration.timeline import timeline_figure
from vdnnsim.report.plots.policies import policies_figure


def test_all_gpus_in_one_picture(pair: ScenarioResult) -> None:
    written = texts(gpus_figure(pair, pair.by_policy[1]))
    assert written[0] == "vdnn_all(p) on 2 GPUs: copies take 2.00 times as long as alone"
    assert written[1] == "one iteration of toy (1), 20.2 s; gradients are added up by a ring"
    assert written.count("GPU 0") == written.count("GPU 1") == 1
    assert written.count("gradients") == 2
    assert {"copy, up to 2.5 times as long", "hatched: prefetch", "exchange of gradients"} <= set(written)
    assert "copy, longer" not in written
    assert "waits for other GPUs" not in written
    assert {"conv1", "fc", "input"} <= set(written)


def test_gpus_without_gradients_or_room_and_many_gpus(pair: ScenarioResult, result: ScenarioResult) -> None:
    rows = pair.by_policy[0]
    written = texts(gpus_figure(replace(pair, gradients=None), rows))
    assert "gradients" not in written
    assert written[1] == "one iteration of toy (1), 19.2 s"
    unfit = tuple(replace(row, refusal=result.results[1].refusal) for row in rows)
    assert "replayed without a capacity because it does not fit" in texts(gpus_figure(pair, unfit))[1]
    eight = tuple(replace(rows[gpu % 2], gpu=gpu % 2) for gpu in range(8))
    assert "conv1" not in texts(gpus_figure(replace(pair, gpus=8), eight))


def test_copies_are_classed_by_their_stretch() -> None:
    meanings = [copy_look(stretch).meaning for stretch in (1.0, 1.3, 2.0, 3.0)]
    assert [each.removeprefix("copy, ") for each in meanings] == [
        *("as long as alone", "up to 1.5 times as long", "up to 2.5 times as long", "longer")
    ]


def test_links_against_their_capacity(pair: ScenarioResult) -> None:
    """Up the uplink 20 B cross in 20.2 s, of 202 B that could: 9.9 %; the same down. The peer link has 36.0 B each way.

    Host memory, shared, has 36 B/s in all and carries 40 B of 727.2: 2.8 % each way.
    """
    written = texts(links_figure(pair, pair.by_policy[1]))
    assert written[0] == "vdnn_all(p): the busiest link, nvlink, is full 100.0 % of the time that it is in use"
    assert written[1] == "one iteration of toy (1) on 2 GPUs, 20.2 s"
    assert {"uplink\n10.00 B/s", "dram\n36.00 B/s in all", "up 9.9 %", "down 9.9 %", "up 2.8 %"} <= set(written)


def test_links_that_are_drawn_and_their_directions(pair: ScenarioResult) -> None:
    topology = pair.server.topology
    assert topology is not None
    nodes = tuple(
        replace(node, link=replace(node.link, up_bytes_per_s=20.0)) if node.name == "switch" and node.link else node
        for node in topology.nodes
    )
    slower = replace(pair, server=replace(pair.server, topology=replace(topology, nodes=nodes)))
    assert "uplink\n20.00 / 10.00 B/s" in texts(links_figure(slower, pair.by_policy[1]))
    # A direction that carries nothing is empty.
    server_trace = pair.results[2].server_trace
    assert server_trace is not None
    up = tuple(load for load in server_trace.loads if load.hop == Hop("uplink", Way.UP))
    rows = tuple(replace(row, server_trace=replace(server_trace, loads=up)) for row in pair.by_policy[1])
    figure = links_figure(pair, rows)
    assert {"up 9.9 %", "down 0.0 %"} <= set(texts(figure))
    assert len(figure.axes[0].collections) == 1
    # Links that carry nothing are not drawn.
    server_trace = pair.results[0].server_trace
    assert server_trace is not None
    quiet = tuple(replace(row, server_trace=replace(server_trace, loads=())) for row in pair.by_policy[0])
    assert [use.link.name for use in link_uses(pair.server, pair.by_policy[0][0].server_trace)] == ["nvlink"]
    assert links_title(pair, quiet) == "base(p): no link carries anything"
    assert links_figure(pair, quiet).axes[0].get_yticklabels() == []
    # Twenty links, the last 14 of which are the busiest.
    (use,) = link_uses(pair.server, pair.by_policy[0][0].server_trace)
    uses = tuple(replace(use, link=replace(use.link, down_bytes_per_s=1000.0 / (1 + n))) for n in range(20))
    uses = tuple(replace(each, link=replace(each.link, up_bytes_per_s=1e9)) for each in uses)
    assert drawn_links(uses) == uses[6:]
    # Both directions of a shared link add up.
    by_name = {use.link.name: use for use in link_uses(pair.server, pair.by_policy[1][0].server_trace)}
    dram = by_name["dram"]
    assert dram.link.sharing is Sharing.SHARED
    assert dram.busiest == pytest.approx(40 / (36 * 20.2))
    assert by_name["uplink"].busiest == pytest.approx(20 / (10 * 20.2))


def test_pictures_of_one_gpu_say_which_of_several_it_is(pair: ScenarioResult) -> None:
    shown = pair.results[3]
    timeline = timeline_figure(pair, shown)
    assert texts(timeline)[1].startswith("GPU 1 of 2, one iteration of 20.2 s; ")
    assert [label.get_text() for label in timeline.axes[0].get_yticklabels()][-1] == "communication stream"
    assert "exchange of gradients (and its stalls)" in texts(timeline)
    assert texts(memory_figure(pair, shown))[1].startswith("GPU 1 of 2, memory over one iteration of 20.2 s; ")
    assert texts(policies_figure(pair))[1].endswith("; of each policy the GPU that is done last")
