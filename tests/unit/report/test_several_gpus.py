"""What reports say of several GPUs and draw of them, on the result that `pair` works out."""

import json
from dataclasses import replace

import pytest

from tests.nested import changed
from tests.toy import TOY_LIMITS, overflow_of, toy_costs
from tests.two_gpus import BASE, SERVER, TREE, WORKLOAD, link, replay_two
from tests.unit.report.test_plots import texts
from vdnnsim.analysis.metrics import measure
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.analysis.several_gpus import link_uses
from vdnnsim.dnn.workload import Optimizer
from vdnnsim.hardware.topology import Hop, PeerLink, Sharing, Topology, Way
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.plans.data_parallel import aggregate_gradients
from vdnnsim.plans.operations import Aggregation, Stream
from vdnnsim.plans.training_plan import ProfilingPass
from vdnnsim.policies.base import Base
from vdnnsim.report.caveats import contention_lines
from vdnnsim.report.findings import caption, refusals, verdict
from vdnnsim.report.plots.iteration.memory import memory_figure
from vdnnsim.report.plots.iteration.several_gpus import copy_look, drawn_links, gpus_figure, links_figure, links_title
from vdnnsim.report.plots.iteration.timeline import timeline_figure
from vdnnsim.report.plots.policies import policies_figure
from vdnnsim.report.run.folder import report_files, run_facts
from vdnnsim.report.run.page import page_text, profiling
from vdnnsim.report.run.perfetto import perfetto_text
from vdnnsim.report.tables.summary import summary
from vdnnsim.scenario.simulator import Simulator


def without_room(pair: ScenarioResult, gpus: set[int]) -> ScenarioResult:
    """Return the result with a policy that does not fit on some GPUs."""
    base = pair.by_policy[0]
    refusal = overflow_of(base[0].trace.plan, replace(TOY_LIMITS, device_bytes=100))
    # A plan of its own for a GPU that would have room, as a policy that treats GPUs differently makes it.
    rows = tuple(
        replace(row, refusal=refusal) if row.gpu in gpus else replace(changed(row, "trace.plan"), refusal=refusal)
        for row in base
    )
    return replace(pair, results=(*rows, *pair.results[2:]))


def test_tables_captions_and_verdicts_of_several_gpus(pair: ScenarioResult) -> None:
    """GPU 1 of late(p) ends its kernels a second later, but both are done at once: what differs is the mean memory."""
    columns = {column.title: column.cells for column in summary(pair).columns}
    assert columns["policy"] == ("base(p)", "vdnn_all(p)", "late(p)", "late(p)")
    assert columns["GPU"] == ("all", "all", "0", "1")
    assert [column.title for column in summary(pair).columns][:3] == ["policy", "GPU", "fits"]
    # Of six GPUs the fourth is another than the rest.
    one, other = pair.results[0], pair.results[2]
    rows = tuple(replace(other if gpu == 3 else one, gpu=gpu, policy="p") for gpu in range(6))
    columns = {column.title: column.cells for column in summary(replace(pair, gpus=6, results=rows)).columns}
    assert columns["GPU"] == ("0-2, 4-5", "3")
    # Caption and verdict of two gpus.
    assert caption(pair) == (
        "toy, batch 1 each, float16, training on 2 x toy GPU with 1000 B each, gradients: ring (ideal memory model)"
    )
    assert "base(p) is the fastest that fits: 19.2 s per iteration, 0.05208 images/s on each of " in verdict(pair)


def test_contention_and_exchanges_of_each_policy(pair: ScenarioResult, result: ScenarioResult) -> None:
    """Exchanges last for 12.2 s after the kernels of base(p): from 7 to 19.2."""
    base, copying, late = contention_lines(pair)
    assert base.startswith("base(p): no map is copied; all GPUs arrive at the exchanges of gradients together; ")
    assert base.endswith("hides 12.2 s of exchanges")
    assert copying.startswith("vdnn_all(p): copies take 2.00 times as long as alone; ")
    assert "GPU 0 waits longest before exchanges, 1.00 s, most of it for GPU 1, the last to 1 of 2; " in late
    assert late.endswith("hides 13.2 s of exchanges")
    assert base in page_text(pair, {}, ()).replace("\\", "")
    assert contention_lines(replace(pair, gradients=None))[0] == "base(p): no map is copied"
    assert contention_lines(result) == ()
    # GPU 1 copies as fast as alone.
    (zero, one) = pair.by_policy[1]
    copies = one.trace.spans_on(Stream.MEMORY)
    shorter = tuple(replace(span, end_s=span.start_s + 1.0) if span in copies else span for span in one.trace.spans)
    (line,) = contention_lines(replace(pair, results=(zero, changed(one, "trace", spans=shorter))))
    assert line.startswith("vdnn_all(p): copies take 1.00 to 2.00 times as long as alone; ")


@pytest.mark.parametrize(("rate", "exposed"), [(10.0, "9.20 s"), (1e9, "7.96 us")])
def test_exchanges_before_updates_are_exposed(pair: ScenarioResult, rate: float, exposed: str) -> None:
    """With SGD the iteration ends with a kernel, the second of two updates, which wait for the exposed exchange.

    The bucket of 72 B comes at 7. At 10 B/s of the links and 144 B/s of DRAM it takes 1 + 7.2 + 1 s; at 1 GB/s and
    14.4 GB/s LL takes 6.6 + 2 x 0.6 us, 0.144 us for what it sends and 0.02 us for the copies: 7.96 us.
    """
    workload = replace(WORKLOAD, optimizer=Optimizer.SGD)
    topology = Topology(TREE, (PeerLink("gpu0", "gpu1", link("nvlink", rate)),))
    server = replace(SERVER, gpu=replace(SERVER.gpu, dram_bytes_per_s=14.4 * rate), topology=topology)
    costs = toy_costs(workload, {})
    simulator = Simulator(workload, server, costs, TOY_LIMITS, PinnedMemory.ARENA, gpus=2, gradients=Aggregation.DDP)
    (line,) = contention_lines(
        replace(pair, gradients=Aggregation.DDP, results=simulator.run(Base(), simulator.oracle()))
    )
    assert line.endswith(f"; no kernel hides {exposed} of exchanges")


def test_many_passes_are_counted(pair: ScenarioResult) -> None:
    """Nine trials, of which the last did not fit, of 1 s each."""
    passes = tuple(ProfilingPass(f"step {number}", fits=number < 9, cost_s=1.0) for number in range(1, 10))
    rows = tuple(changed(row, "trace.plan", passes=passes) for row in pair.by_policy[0])
    (line, _) = profiling(replace(pair, results=rows))
    assert line.startswith("base(p) settled on p after 9 passes: 8 fit and 1 do not; run.json has each; 9.00 s in ")


@pytest.mark.parametrize(("gpus", "where"), [({0, 1}, ""), ({1}, " on GPU 1")])
def test_a_refusal_says_on_which_gpus(pair: ScenarioResult, gpus: set[int], where: str) -> None:
    result = without_room(pair, gpus)
    (line,) = refusals(result)
    assert line.startswith(f"base(p){where}: forward of ")
    assert not result.slowest[0].fits
    assert result.slowest[0].gpu in gpus


def test_the_manifest_has_contention_and_waits(pair: ScenarioResult) -> None:
    manifest = run_facts(pair)
    assert (manifest["scenario"]["gpus"], manifest["scenario"]["gradients"]) == (2, "ring")
    assert manifest["scenario"]["policies"] == ["base(p)", "vdnn_all(p)", "late(p)"]
    assert len(manifest["results"]) == 6
    copied, late = manifest["results"][2], manifest["results"][4]
    assert (copied["copies_s"], copied["copies_alone_s"]) == pytest.approx((4.0, 2.0))
    assert late["waited_for_gpu_s"] == pytest.approx([0.0, 1.0])


def test_the_trace_has_a_process_for_each_gpu_and_one_for_the_links(pair: ScenarioResult) -> None:
    content = json.loads(perfetto_text(pair, pair.by_policy[1]))
    events = content["traceEvents"]
    processes = {each["pid"]: each["args"]["name"] for each in events if each["name"] == "process_name"}
    threads = {(each["pid"], each["tid"]): each["args"]["name"] for each in events if each["name"] == "thread_name"}
    exchanges = [each for each in events if each.get("cat") == "exchange of gradients"]
    assert content["otherData"]["gpus"] == 2
    assert processes == {0: "GPU 0: toy GPU, vdnn_all(p)", 1: "GPU 1: toy GPU, vdnn_all(p)", 2: "links"}
    assert threads[1, 4] == "communication stream"
    assert [(each["pid"], each["name"]) for each in exchanges] == [
        (gpu, f"aggregation of the gradients of {layer} (ring)") for gpu in (0, 1) for layer in ("fc", "conv1")
    ]
    uplink = [each for each in events if each["name"] == "uplink up (bytes/s)"]
    assert [(each["ts"], each["args"]["carried"]) for each in uplink][-1] == (2e6, 0.0)


def test_a_bucket_says_what_it_holds(pair: ScenarioResult) -> None:
    """One bucket holds the gradients of both layers of the toy network, and conv1 comes last."""
    trace = replay_two(aggregate_gradients(BASE, Aggregation.DDP))
    rows = tuple(
        replace(row, trace=each, metrics=measure(each, 1), server_trace=trace)
        for row, each in zip(pair.by_policy[0], trace.gpus, strict=True)
    )
    bucketed = replace(pair, gradients=Aggregation.DDP, results=rows)
    events = json.loads(perfetto_text(bucketed, rows))["traceEvents"]
    (exchange, _) = (each for each in events if each.get("cat") == "exchange of gradients")
    assert exchange["name"] == "aggregation of the bucket of 2 gradients, completed by conv1 (ddp)"
    assert exchange["args"]["bytes"] == 72
    (line,) = contention_lines(bucketed)
    assert line.endswith("; no kernel hides 23.2 s of exchanges")
    texts = [text.get_text() for text in gpus_figure(bucketed, rows).texts]
    assert any(text.endswith("gradients are added up by a ring, in the buckets of DDP") for text in texts)


def test_only_the_subject_is_drawn_without_copies(pair: ScenarioResult) -> None:
    quiet: tuple[PolicyResult, ...] = (*pair.by_policy[0], *pair.by_policy[2])
    pictures = [name for name in report_files(replace(pair, results=quiet)) if name.startswith(("gpus", "links"))]
    assert sorted(pictures) == ["gpus_base_p.png", "links_base_p.png"]


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
        changed(node, "link", up_bytes_per_s=20.0) if node.name == "switch" else node for node in topology.nodes
    )
    slower = changed(pair, "server.topology", nodes=nodes)
    assert "uplink\n20.00 / 10.00 B/s" in texts(links_figure(slower, pair.by_policy[1]))
    # A direction that carries nothing is empty.
    server_trace = pair.results[2].server_trace
    assert server_trace is not None
    up = tuple(load for load in server_trace.loads if load.hop == Hop("uplink", Way.UP))
    rows = tuple(changed(row, "server_trace", loads=up) for row in pair.by_policy[1])
    figure = links_figure(pair, rows)
    assert {"up 9.9 %", "down 0.0 %"} <= set(texts(figure))
    assert len(figure.axes[0].collections) == 1
    # Links that carry nothing are not drawn.
    quiet = tuple(changed(row, "server_trace", loads=()) for row in pair.by_policy[0])
    assert [use.link.name for use in link_uses(pair.server, pair.by_policy[0][0].server_trace)] == ["nvlink"]
    assert links_title(pair, quiet) == "base(p): no link carries anything"
    assert links_figure(pair, quiet).axes[0].get_yticklabels() == []
    # Twenty links, the last 14 of which are the busiest.
    (use,) = link_uses(pair.server, pair.by_policy[0][0].server_trace)
    uses = tuple(changed(use, "link", down_bytes_per_s=1000.0 / (1 + n), up_bytes_per_s=1e9) for n in range(20))
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
