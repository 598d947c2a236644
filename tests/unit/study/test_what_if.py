"""`vdnnsim whatif` as scripts rely on it."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from tests.answers import with_storage
from tests.captured_ranks import sharded, staged
from tests.captured_steps import chain
from tests.command_line import SMALL, csv_rows, vdnnsim
from tests.machines import shipped_profile
from vdnnsim.analysis.kernel_origins import KernelOrigins
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.step import BufferKind
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.policies.registry import known_policies
from vdnnsim.report.findings import conclusions
from vdnnsim.report.run.browser import html_text
from vdnnsim.scenario.captured import scenario_of
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.study.what_if import Replayed, change_result, made_of, what_if


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(SMALL)
    return tmp_path


def test_what_if_prints_before_and_after(folder: Path) -> None:
    """AlexNet's base(p) copies nothing, so another link changes none of its numbers; in 1 MiB nothing fits."""
    settings = ("--set", "link.bandwidth=300GB/s", "--set", "gpu.memory=1MiB")

    done = vdnnsim("whatif", "small.yaml", *settings, "--csv", "w.csv", folder=folder)

    vdnnsim("whatif", "small.yaml", *settings, "--require-fit", folder=folder, status=4)
    found = csv_rows(folder / "w.csv")
    assert done.stdout.count("fits no longer") == len({row["policy"] for row in found})
    assert [(row["policy"], row["when"], row["fits"]) for row in found] == [
        ("base(p)", "before", "true"),
        ("base(p)", "after", "false"),
        ("vdnn_all(m)", "before", "true"),
        ("vdnn_all(m)", "after", "false"),
    ]
    assert found[0]["iteration_s"] == found[1]["iteration_s"]
    assert float(found[2]["iteration_s"]) > float(found[3]["iteration_s"])
    vdnnsim("run", "small.yaml", folder=folder)
    assert [row["iteration_s"] for row in csv_rows(folder / "reports" / "small" / "results.csv")] == [
        found[0]["iteration_s"],
        found[2]["iteration_s"],
    ]
    assert done.stderr == ""
    printed = " ".join(done.stdout.split())
    for words in ("after link.bandwidth=300GB/s, gpu.memory=1MiB", "after NO * ", "0 of 2 policies fit, 2 before"):
        assert words in printed
    assert f" {100 * float(found[2]['performance_ratio']):.1f} %" in printed
    assert done.stdout.count("Kernel times") == 1


def test_a_difference_is_told_by_its_kernels_waits_and_buffers(tmp_path: Path) -> None:
    """A chain in a CUDA graph, on a host that takes 1 s to issue each of its 16 kernels; nothing else differs.

    In a graph the host waits once, before the first kernel.
    """
    step = chain()
    graph = CapturedModel(step)
    model = CapturedModel(step, capture_execution={"cuda_graphs": graph}.__getitem__)
    scenario = scenario_of(model, "x", shipped_profile("rtx_4090"), (PyTorch(),))
    host = replace(scenario.server.host, issue_s=1.0, dispatch_forward_s=0.0, dispatch_backward_s=0.0)
    scenario = replace(scenario, server=replace(scenario.server, host=replace(host, dispatch_library_s=0.0)))
    (change,) = what_if(scenario, tmp_path, ["execution=cuda_graphs"], known_policies())
    before, after = change.replayed_before.metrics, change.replayed_after.metrics
    assert before is not None
    assert after is not None
    kernels = len([each for each in step.operations if each.bytes_moved])
    assert before.iteration_s == pytest.approx(kernels, rel=1e-3)
    assert after.iteration_s == pytest.approx(1, rel=1e-3)
    assert made_of(change) == f"pytorch(p): time: -{kernels - 1}.0 s waits for the host to issue"
    nbytes = before.peak_by_kind[0][1]
    more = replace(after, peak_by_kind=((before.peak_by_kind[0][0], nbytes + 2**30), *after.peak_by_kind[1:]))
    changed = replace(change, replayed_after=Replayed(KernelOrigins(), more))
    assert made_of(changed).endswith(f"memory at the peak: +1.00 GiB {before.peak_by_kind[0][0].words}")
    assert made_of(replace(change, replayed_after=change.replayed_before)) == ""
    assert made_of(replace(change, replayed_after=Replayed(KernelOrigins(), None))) == ""


@pytest.mark.parametrize("number", ["1_0", "\uff11\uff10"])
def test_what_if_refuses_numbers_that_a_file_refuses(folder: Path, number: str) -> None:
    """Python reads both as ten: underscores, and digits as wide as ideographs."""
    for setting in (f"workload.batch_size={number}", f"gpu.memory={number} GiB"):
        done = vdnnsim("whatif", "small.yaml", "--set", setting, folder=folder, status=1)
        assert done.stderr.count("\n") == 1
        assert f"found '{number}" in done.stderr


def test_what_if_states_the_origin_of_kernel_times_before_and_after(folder: Path) -> None:
    """On the other card nothing was measured; it states workspaces of float32 alone."""
    settings = ("--set", "hardware=h200", "--set", "workload.element_type=float16")
    done = vdnnsim("whatif", "small.yaml", *settings, folder=folder)
    before, after = " ".join(done.stdout.split()).split("- before: Kernel times: ")[1].split("- after: Kernel times: ")
    assert "fitted to measurements" in before
    assert "carried over" in after
    assert "h200.kernels.csv times no kernel in float16, only in float32" in after


def test_a_power_limit_slows_products(folder: Path) -> None:
    """AlexNet in TF32 on an H100 of 700 W: at 200 W its layers take longer; with 60 W it could not idle."""
    on_an_h100 = ("whatif", "small.yaml", "--set", "hardware=h100_sxm", "--set", "workload.precision=tf32")
    seconds = []
    for limit in ("700W", "200W"):
        vdnnsim(*on_an_h100, "--set", f"power.limit={limit}", "--csv", "w.csv", folder=folder)
        seconds.append(float(csv_rows(folder / "w.csv")[1]["iteration_s"]))
    assert seconds[0] < seconds[1] < 3 * seconds[0]
    assert "power.limit: found 60 W" in vdnnsim(*on_an_h100, "--set", "power.limit=60W", folder=folder).stdout


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("link.bandwidths=1GB/s", "did you mean 'link.bandwidth'?"),
        ("link.bandwidth", "found 'link.bandwidth', expected KEY=VALUE"),
        ("policy=none", "'policy' is not a value of a scenario"),
        ("gpu.memory=12 apples", "--set: gpu.memory: found '12 apples', expected a number with one of the units"),
        ("gpus=2", "--set: titan_x_maxwell: found 2 GPUs, but it has 1"),
        ("colour=red", " more\n"),
        ("workload.precision=float16 workload.element_type=float16", "beside 'workload.precision'"),
        ("parallel=fsdp=8", "--set: 'parallel' is how a model is captured; expected `vdnnsim parallel MODEL`"),
        ("execution=compiled", "--set: execution: found 'compiled', but fusion is unknown for the layers of a built"),
        ("workload.precision=fp8", "'fp8' is not a precision"),
        ("workload.precision=tf32", "--set: titan_x_maxwell states no gpu.peak for 'tf32'"),
        ("power.limit=200W", "--set: titan_x_maxwell: power.limit: what this machine draws decides no time"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(folder: Path, setting: str, message: str) -> None:
    settings = [setting] if setting.endswith("apples") else setting.split()
    done = vdnnsim("whatif", "small.yaml", *(f"--set={each}" for each in settings), folder=folder, status=1)
    assert len(done.stderr) < 700
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_throughput_of_one_of_several_ranks_is_said_to_be(tmp_path: Path) -> None:
    """All eight together have more, which `parallel` says; a GPU alone has its own.

    Two that split layers compute the same samples.
    """
    for ranks, layout, whose in ((1, "", ""), (8, "", "one rank"), (8, "fsdp=4,tp=2", "2 ranks")):
        step = msgspec.structs.replace(sharded(), ranks=ranks, parallel=layout)
        scenario = scenario_of(CapturedModel(step), "x", shipped_profile("rtx_4090_x8"), (PyTorch(),))
        settings = ["gpu.memory=20GiB"]
        changed = change_result(scenario, what_if(scenario, tmp_path, settings, known_policies()), settings, "")
        result = run_scenario(scenario)
        (said,) = conclusions(result)
        assert (f"throughput of {whose}" in html_text(result)) is (ranks > 1)
        # The title of a column may end on the next line.
        assert [f"/s of {whose[:3]}" in text for text in (str(changed), said)] == [ranks > 1] * 2


def test_what_just_fits_is_said_as_in_a_run(tmp_path: Path) -> None:
    """Of a captured model a process fits surely in 1.05 times what it takes, by any memory model."""
    roomy = scenario_of(CapturedModel(chain()), "x", shipped_profile("rtx_4090"), (PyTorch(),))
    result = run_scenario(roomy)
    (row,) = result.slowest
    taken = result.needed_bytes(row)
    setting = [f"gpu.memory={int(taken * 1.04)} B"]
    tight = replace(roomy, server=replace(roomy.server, gpu=replace(roomy.server.gpu, memory_bytes=int(taken * 1.04))))
    just = run_scenario(tight)
    assert just.just_fits(just.slowest[0])
    shown = str(change_result(roomy, what_if(roomy, tmp_path, setting, known_policies()), setting, ""))
    assert " ".join(shown.split()).count("after just ") == 1
    assert "just: fits by its simulated peak, but peaks may be 5.0 % too low" in shown
    back = str(change_result(tight, what_if(tight, tmp_path, ["gpu.memory=24GiB"], known_policies()), setting, ""))
    assert "before just " in " ".join(back.split())
    assert "after yes " in " ".join(back.split())


def test_micro_batches_and_stages_are_replayed_as_in_a_run(tmp_path: Path) -> None:
    """Three micro-batches of two images are six, with the batch as `--batch` has it; two stages wait for each other."""
    first, last = staged()
    staging = CapturedModel(first, others=[CapturedModel(last)])
    for model, name in ((CapturedModel(chain(), rounds=3), "rtx_4090"), (staging, "h100_x8")):
        asked = scenario_of(model, "x", shipped_profile(name), (PyTorch(),))
        (change,) = what_if(asked, tmp_path, [f"workload.batch_size={model.base.part_size}"], known_policies())
        run = run_scenario(asked)
        for row in (change.before, change.after):
            assert row.number("iteration_s") == run.slowest[0].metrics.iteration_s
            trained = row.number("server_samples_per_s") * row.number("iteration_s")
            assert trained == pytest.approx(run.workload.batch_size)
    assert run.workload.batch_size == 2


def test_another_card_gets_the_capture_that_is_its_own(tmp_path: Path) -> None:
    """On cards of compute capability 7.5 the model keeps 1 MiB more; `run` there has the same."""
    there = msgspec.structs.replace(with_storage(chain(), BufferKind.WEIGHTS, 2**20), device="cuda 7.5")
    model, other = CapturedModel(chain()), CapturedModel(there)
    model.capture_card = lambda server: other if server.name == "t4" else model
    asked = scenario_of(model, "x", shipped_profile("rtx_4090"), (PyTorch(),))
    (change,) = changes = what_if(asked, tmp_path, ["hardware=t4"], known_policies())
    run = run_scenario(scenario_of(other, "x", shipped_profile("t4"), (PyTorch(),)))
    assert change.after.number("allocated_bytes") == run.slowest[0].metrics.allocated_bytes
    assert change.after.number("iteration_s") == run.slowest[0].metrics.iteration_s
    said = " ".join(str(change_result(asked, changes, ["hardware=t4"], "")).split())
    assert "- after: captured as cuda 7.5" in said
    assert "+1.00 MiB weights" in said
