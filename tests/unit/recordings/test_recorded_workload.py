"""Workloads and profiles of recorded steps; traces are those of `tests.recorded_traces`."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.recorded_traces import execution_trace, new_trace, old_trace, write
from tests.refusals import refusal
from vdnnsim.cost.model import NO_LIFETIMES, ServerCosts
from vdnnsim.dnn.captured_file import read_captured_step, write_captured_step
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.kernel_work import ProductWork
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import Access, BufferKind
from vdnnsim.dnn.workload import Mode
from vdnnsim.errors import RecordingError
from vdnnsim.hardware.profile import find_profile, read_profile
from vdnnsim.hardware.server import Origin
from vdnnsim.recordings.execution_trace import read_execution_trace
from vdnnsim.recordings.recorded_profile import write_recorded_profile
from vdnnsim.recordings.recorded_step import RecordedStep, read_step
from vdnnsim.recordings.recorded_workload import captured_step, precision_of
from vdnnsim.units import ElementType, Precision

MICRO = 1e-6


def recorded(folder: Path, trace: object | None = None) -> RecordedStep:
    """Return the step of a trace, the newest format by default."""
    return read_step(write(new_trace() if trace is None else trace, folder / "trace.json"))


def with_lifetimes(folder: Path, execution: object | None = None) -> CapturedStep:
    """Return the step with the storages of its execution trace."""
    path = write(execution_trace() if execution is None else execution, folder / "et.json")
    return captured_step(recorded(folder), "m", read_execution_trace(path))


def kinds(step: CapturedStep) -> dict[str, tuple[BufferKind, int, int | None]]:
    """Return kind, bytes and free of the storages of a step by name."""
    return {each.name: (each.kind, each.nbytes, each.freed_after) for each in step.storages}


@pytest.mark.parametrize("trace", [new_trace(), old_trace()], ids=["new", "old"])
def test_a_trace_becomes_a_workload_of_times(trace: object, tmp_path: Path) -> None:
    step = captured_step(recorded(tmp_path, trace), "m")
    assert (step.batch_size, step.sample, step.mode, step.optimizer) == (2, "image", Mode.TRAINING, "sgd")
    assert [each.phase for each in step.operations] == [Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE]
    assert not step.lifetimes
    path = tmp_path / "m.step.json"
    write_captured_step(step, path)
    read, _ = read_captured_step(path)
    assert read == step
    assert [layer.name for layer in CapturedWorkload.of(read).graph.layers][-1] == "optimizer"


def test_an_execution_trace_has_lifetimes(tmp_path: Path) -> None:
    """Sizes are elements times 4 B. Batch, filters and bias are given; forward makes the output, freed after 0.

    The gradient that backward reads was made empty under a number of its own and written by nothing, so it counts as
    given. The gradient of the batch is freed at once, that of the filters with the update, that of the bias unread.
    """
    step = with_lifetimes(tmp_path)
    assert step.lifetimes
    assert step.operations[0].saves == (0, 1), "backward reads batch and filters"
    found = kinds(step)
    assert [name for name in found if name.startswith("given")] == ["given 0", "given 1", "given 2", "given 4"]
    assert found["given 0"] == (BufferKind.FEATURE_MAP, 1536, None)
    assert found["given 1"] == (BufferKind.WEIGHTS, 432, None)
    assert found["convolution 0"] == (BufferKind.FEATURE_MAP, 2048, 0)
    gradients = [each for each in step.storages if each.name == "convolution_backward 1"]
    assert [(each.kind, each.nbytes, each.freed_after) for each in gradients] == [
        (BufferKind.GRADIENT_MAP, 1536, 1),
        (BufferKind.WEIGHT_GRADIENT, 432, 2),
        (BufferKind.GRADIENT_MAP, 16, 1),
    ]


def test_storages_by_number(tmp_path: Path) -> None:
    """Backward returns a gradient under the number of the output, 4: another storage. So does `empty`."""
    execution = execution_trace()
    for node in execution["nodes"]:
        if node["name"] in {"aten::convolution_backward", "aten::empty"}:
            node["outputs"]["values"][0][1] = 4
    step = with_lifetimes(tmp_path, execution)
    output = next(each for each in step.storages if each.name == "convolution 0")
    gradient = next(each for each in step.storages if each.name == "convolution_backward 1")
    assert (output.nbytes, output.freed_after, gradient.nbytes) == (2048, 0, 1536)
    # A call of `empty` below the convolution, under the number of its output, changes nothing.
    execution = execution_trace()
    nodes = execution["nodes"]
    for at, node in enumerate(nodes):
        if node["name"] == "aten::empty":
            node["ctrl_deps"] = nodes[at - 1]["id"]
            node["outputs"]["values"][0][1] = 4
        if node["name"] == "aten::convolution_backward":
            node["inputs"]["values"][0][1] = 4
    step = with_lifetimes(tmp_path, execution)
    assert kinds(step)["convolution 0"] == (BufferKind.FEATURE_MAP, 2048, 1)
    # And tensors of a list count one by one.
    execution = execution_trace()
    for node in execution["nodes"]:
        if node["name"] == "aten::add_":
            first, second = node["inputs"]["values"]
            node["inputs"]["values"] = [[first], [second], [9, 90, 0, 1, 4, "cpu"], [9, 91, 0, 0, 0, ""], [9, "x"], 3]
    step = with_lifetimes(tmp_path, execution)
    update = step.operations[-1].operands
    found = [(step.tensors[each.memory].storage, each.access) for each in update]
    assert found == [(1, Access.UPDATE), (6, Access.READ)]
    # Arguments and the record are in the node, the caller is its `parent`.
    execution = execution_trace()
    for node in execution["nodes"]:
        node["rf_id"], node["parent"] = node.pop("attrs")[0]["value"], node.pop("ctrl_deps")
        node["inputs"], node["outputs"] = node["inputs"]["values"], node["outputs"]["values"]
    assert kinds(with_lifetimes(tmp_path, execution)) == kinds(with_lifetimes(tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not complete JSON"),
        (b"{}", "found JSON without 'nodes'"),
        (b"[]", "expected `object`, got `array`"),
        (b'{"nodes": [{"name": "x"}]}', "missing required field `id`"),
        (b'{"nodes": []}', "has 0 of the 3 operators of ProfilerStep#6"),
    ],
)
def test_files_that_are_no_execution_trace_of_the_run_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "et.json"
    path.write_bytes(content)
    assert message in refusal(
        RecordingError, lambda: captured_step(recorded(tmp_path), "m", read_execution_trace(path))
    )


def test_inference_is_all_forward(tmp_path: Path) -> None:
    trace, update = new_trace(), ("Optimizer", "aten::add_")
    events = [each for each in trace["traceEvents"] if each["tid"] != 2 and not each["name"].startswith(update)]
    trace["traceEvents"] = events
    step = captured_step(recorded(tmp_path, trace), "m")
    assert (step.mode, step.optimizer) == (Mode.INFERENCE, "none")


@pytest.mark.parametrize(
    ("types", "gradient", "kernel", "precision"),
    [
        ("float", "float", "sgemm", Precision.FLOAT32),
        ("float", "float", "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32", Precision.FLOAT32),
        ("c10::Half", "float", "h", Precision.AMP_FLOAT16),
        ("c10::BFloat16", "c10::BFloat16", "h", Precision.BFLOAT16),
    ],
)
def test_precision_is_that_of_products_and_of_gradients(
    types: str, gradient: str, kernel: str, precision: Precision, tmp_path: Path
) -> None:
    """Narrow products with gradients of float32 are mixed precision; convolutions of float32 may be in TF32."""
    trace = new_trace()
    for each in trace["traceEvents"]:
        if "convolution" in each["name"] and "Input type" in each["args"]:
            each["args"]["Input type"] = [types] * 3
        if each["name"] == "implicit_convolve_sgemm":
            each["name"] = kernel
        if each["name"] == "ConvolutionBackward0":
            args = {"Input Dims": [[4, 3, 3, 3]], "Input type": [gradient]}
            extra = {**each, "name": "torch::autograd::AccumulateGrad", "ts": each["ts"] + 99, "dur": 1, "args": args}
            trace["traceEvents"] = [*trace["traceEvents"], extra]
    found = recorded(tmp_path, trace)
    assert precision_of(found) is precision
    assert captured_step(found, "m").parameters == 108


@pytest.mark.parametrize(
    ("kernel", "precision"),
    [
        ("ampere_sgemm_128x64_tn", Precision.FLOAT32),
        ("cutlass_80_tensorop_s1688gemm_128x256_16x3_tn_align4", Precision.TF32),
        ("sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x64", Precision.TF32),
    ],
)
def test_products_of_matrices_tell_tf32(kernel: str, precision: Precision, tmp_path: Path) -> None:
    """By the names of cuBLAS's kernels; the convolutions of the trace are products of matrices here."""
    trace = new_trace()
    for each in trace["traceEvents"]:
        if each["name"] == "implicit_convolve_sgemm":
            each["name"] = kernel
    found = recorded(tmp_path, trace)
    works = tuple(each if each.work is None else replace(each, work=ProductWork(1, 2, 2, 2)) for each in found.works)
    assert precision_of(replace(found, works=works)) is precision


def test_profiles_of_traces(tmp_path: Path) -> None:
    """Kernels take 100 us forward, 60 + 40 backward, 5 the update; the gap in lifetimes is noted."""
    found = recorded(tmp_path)
    path, table = tmp_path / "card.yaml", tmp_path / "card.kernels.csv"
    assert write_recorded_profile(path, found, None) == (table, path)
    server = read_profile(path)
    costs = ServerCosts(server).table(CapturedWorkload.of(captured_step(found, "m")))
    times = sorted(options[0].seconds for options in costs.kernels.values())
    assert times == pytest.approx([5 * MICRO, 100 * MICRO, 100 * MICRO])
    assert NO_LIFETIMES in costs.gap
    # The GPU by its properties; the fastest kernel 27648 FLOPs in 40 us, the fastest stream 1296 B in 5 us. The host
    # takes (1000 - 10 - 2) / 3 us for an operation. The copy is too small for a rate.
    path = tmp_path / "card.yaml"
    write_recorded_profile(path, recorded(tmp_path), None)
    server = read_profile(path)
    assert (server.gpu.name, server.gpu.memory_bytes, server.gpu.multiprocessors) == ("Tesla T4", 15 << 30, 40)
    assert server.gpu.flop_per_s[ElementType.FLOAT32] == pytest.approx(27648 / 40e-6, rel=1e-3)
    assert server.gpu.dram_bytes_per_s == pytest.approx(1296 / 5e-6, rel=1e-3)
    assert server.host.issue_s == pytest.approx(988e-6 / 3, rel=1e-3)
    origins = {each.path: each.origin for each in server.figures}
    assert (origins["host.issue"], origins["link.h2d"]) == (Origin.MEASURED, Origin.ASSUMED)
    assert server.kernels is not None
    assert not server.kernels.tf32
    # 2 MiB in 20 us; the other direction is assumed to be as fast.
    trace = new_trace()
    for each in trace["traceEvents"]:
        if each["cat"] == "gpu_memcpy":
            each["args"]["bytes"] = 2 << 20
    path = tmp_path / "card.yaml"
    write_recorded_profile(path, recorded(tmp_path, trace), None)
    link = read_profile(path).link
    assert link.h2d_bytes_per_s == pytest.approx((2 << 20) / 20e-6, rel=1e-3)
    assert link.d2h_bytes_per_s == link.h2d_bytes_per_s
    # It does not say on which GPU it ran.
    with pytest.raises(RecordingError, match=r"does not name its GPU, .* expected --hardware"):
        write_recorded_profile(tmp_path / "card.yaml", recorded(tmp_path, old_trace()), None)


@pytest.mark.parametrize("trace", [new_trace(), old_trace()], ids=["new", "old"])
def test_another_profile_states_the_rest(trace: object, tmp_path: Path) -> None:
    """Its link and peaks stay; GPU and host are the trace's, where it has them."""
    base = read_profile(find_profile("titan_xp", tmp_path))
    path = tmp_path / "card.yaml"
    write_recorded_profile(path, recorded(tmp_path, trace), base)
    server = read_profile(path)
    assert server.link == base.link
    assert server.gpu.flop_per_s == base.gpu.flop_per_s
    assert server.gpu.multiprocessors == (base.gpu.multiprocessors if trace == old_trace() else 40)
    assert server.host.issue_s != base.host.issue_s
