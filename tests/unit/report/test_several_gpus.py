"""What the reports say of several GPUs, on the result that `pair` works out."""

import json
from dataclasses import replace

import pytest

from tests.toy import TOY_LIMITS, overflow_of, toy_costs
from tests.two_gpus import BASE, SERVER, TREE, WORKLOAD, link, replay_two
from vdnnsim.analysis.metrics import measure
from vdnnsim.analysis.results import PolicyResult, ScenarioResult
from vdnnsim.dnn.workload import Optimizer
from vdnnsim.hardware.topology import PeerLink, Topology
from vdnnsim.memory.choices import PinnedMemory
from vdnnsim.plans.data_parallel import aggregate_gradients
from vdnnsim.plans.operations import Aggregation, Stream
from vdnnsim.plans.training_plan import ProfilingPass
from vdnnsim.policies.base import Base
from vdnnsim.report.caveats import contention_lines
from vdnnsim.report.findings import caption, refusals, verdict
from vdnnsim.report.plots.iteration.several_gpus import gpus_figure
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
        replace(row, refusal=refusal)
        if row.gpu in gpus
        else replace(row, refusal=refusal, trace=replace(row.trace, plan=replace(row.trace.plan)))
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
    (line,) = contention_lines(replace(pair, results=(zero, replace(one, trace=replace(one.trace, spans=shorter)))))
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
    rows = tuple(
        replace(row, trace=replace(row.trace, plan=replace(row.trace.plan, passes=passes))) for row in pair.by_policy[0]
    )
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
