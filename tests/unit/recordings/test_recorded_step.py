"""Steps read from traces, which `tests.recorded_traces` draws."""

from pathlib import Path

import pytest

from tests.recorded_traces import STEP_US, new_trace, old_trace, write
from tests.refusals import refusal
from vdnnsim.dnn.layers import Phase
from vdnnsim.errors import RecordingError
from vdnnsim.recordings.recorded_step import RecordedStep, read_step
from vdnnsim.recordings.recorded_workload import captured_step

MICRO = 1e-6


def step_of(trace: object, folder: Path, name: str = "trace.json") -> RecordedStep:
    return read_step(write(trace, folder / name))


@pytest.mark.parametrize("trace", [new_trace(), old_trace()], ids=["new", "old"])
def test_a_step_is_the_same_in_both_formats(trace: object, tmp_path: Path) -> None:
    """The one between the first and the last of three; its operators take 100, 60 + 40 and 5 us, 10 us are of none."""
    recorded = step_of(trace, tmp_path, "trace.json.gz")
    assert recorded.step.name == "ProfilerStep#6"
    assert recorded.step.seconds == pytest.approx(STEP_US * MICRO)
    found = [(each.name, each.phase, round(each.seconds / MICRO, 3), each.forward) for each in recorded.operations]
    assert found == [
        ("convolution", Phase.FORWARD, 100, None),
        ("convolution_backward", Phase.BACKWARD, 100, 0),
        ("add_", Phase.UPDATE, 5, None),
    ]
    assert (recorded.attributed_s, recorded.kernel_s) == pytest.approx((205 * MICRO, 215 * MICRO))
    [(reason, (kernels, seconds))] = recorded.unattributed.items()
    assert "between its operators" in reason
    assert (kernels, seconds) == pytest.approx((1, 10 * MICRO))
    assert recorded.batch_size == 2
    assert [each.nbytes for each in recorded.copies] == [1536]


def test_the_gpu_waits_for_data_copies_and_the_host(tmp_path: Path) -> None:
    """It waits for what follows, from the end of the step before, 475 us before this one, to 525 us in it.

    Data 0 to 10, the copy 15 to 35, so of the 525 us until forward begins at 50 there remain 475 + 5 + 15 = 495;
    backward waits 150 to 320 and 380 to 390, the update 440 to 520; in all 1000 - 215 = 785 us.
    """
    idle = {cause: seconds / MICRO for cause, seconds in step_of(new_trace(), tmp_path).idle.items()}
    assert idle == {
        "waits for the next batch": pytest.approx(10),
        "waits for copies between host and GPU": pytest.approx(20),
        "waits for the host to issue forward": pytest.approx(495),
        "waits for the host to issue backward": pytest.approx(180),
        "waits for the host to issue the update": pytest.approx(80),
    }
    # 1000 us of the host, less 10 of the data loader and 2 of the call that copies, for three operations.
    assert step_of(new_trace(), tmp_path).issue_s == pytest.approx((1000 - 10 - 2) / 3 * MICRO)


def test_backward_is_matched_and_a_trace_without_marks_one_step(tmp_path: Path) -> None:
    """A trace with modules has them on the threads of forward alone."""
    assert [each.module for each in step_of(new_trace(), tmp_path).operations] == ["Conv2d_0", "Conv2d_0", ""]
    # `ConvolutionBackward0` is of the last `convolution` whose operands have dimensions.
    trace = new_trace(sequences=True)
    assert [each.forward for each in step_of(trace, tmp_path).operations] == [None, 0, None]
    trace["traceEvents"] += call("aten::convolution", 200, [[], []], 9001)
    assert [each.forward for each in step_of(trace, tmp_path).operations] == [None, None, 0, None]
    # Three times 205 us, with the reason.
    recorded = step_of(new_trace(steps=True), tmp_path)
    assert (recorded.step.name, len(recorded.operations)) == ("the whole trace", 9)
    assert "profiler.step()" in recorded.step.why
    assert recorded.attributed_s == pytest.approx(3 * 205 * MICRO)


def call(name: str, begin: float, dims: list[list[int]], number: int, thread: int = 1) -> list[dict[str, object]]:
    """Return an operator of 10 us from a time of the second step on, in microseconds, and its kernel of 1 us."""
    host = {"ph": "X", "pid": 1, "tid": thread, "ts": 7e6 + STEP_US + begin, "dur": 10}
    launched = {"correlation": number, "device": 0, "stream": 7}
    return [
        {**host, "cat": "cpu_op", "name": name, "args": {"Input Dims": dims}},
        {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 2, "args": {"correlation": number}},
        {**host, "cat": "kernel", "name": "k", "tid": 7, "dur": 1, "args": launched},
    ]


def test_the_batch_is_that_of_an_embedding_or_of_most_of_forward(tmp_path: Path) -> None:
    """Where there is no convolution: 6 rows of indices into 9 words; else the first size that most have, 5; else 1."""
    trace = new_trace()
    bare = [each for each in trace["traceEvents"] if "onv" not in each["name"]]
    words = call("aten::embedding", 700, [[9, 4], [6, 3]], 9001)
    rows = [*call("aten::mm", 700, [[5, 2], [2, 3]], 9001), *call("aten::add", 720, [[5, 3], []], 9002)]
    for more, batch in ((words, 6), (rows, 5), (call("aten::add", 700, [[], []], 9001), 1)):
        assert step_of({**trace, "traceEvents": [*bare, *more]}, tmp_path).batch_size == batch


def test_operations_after_all_backward_are_the_update(tmp_path: Path) -> None:
    """As the norm of gradients that is clipped before the optimizer runs."""
    trace = new_trace()
    trace["traceEvents"] += call("aten::linalg_vector_norm", 450, [[4, 3, 3, 3]], 9001)
    found = [(each.name, each.phase) for each in step_of(trace, tmp_path).operations]
    assert found[2:] == [("linalg_vector_norm", Phase.UPDATE), ("add_", Phase.UPDATE)]
    # The update of a workload is last.
    trace = new_trace()
    clear = {"ph": "X", "cat": "user_annotation", "name": "Optimizer.zero_grad#SGD.zero_grad", "pid": 1, "tid": 1}
    trace["traceEvents"] += [
        {**clear, "ts": 7e6 + STEP_US + 190, "dur": 60, "args": {}},
        *call("aten::zero_", 200, [[4, 3, 3, 3]], 9001),
    ]
    recorded = step_of(trace, tmp_path)
    assert [(each.name, each.phase) for each in recorded.operations][1] == ("zero_", Phase.UPDATE)
    phases = [each.phase for each in captured_step(recorded, "m").operations]
    assert phases == [Phase.FORWARD, Phase.FORWARD, Phase.BACKWARD, Phase.UPDATE]


def test_kernels_are_matched_to_operators(tmp_path: Path) -> None:
    """A kernel of 1 us of the second step whose call was not recorded."""
    trace = new_trace()
    trace["traceEvents"].append(call("aten::relu", 700, [], 9999)[-1])
    kernels, seconds = step_of(trace, tmp_path).unattributed["launched before the recording began"]
    assert (kernels, seconds) == pytest.approx((1, 1 * MICRO))
    # Here all kernels have that of the convolution.
    trace = new_trace()
    events = [each for each in trace["traceEvents"] if each["cat"] != "cuda_runtime"]
    for step in (5, 6, 7):
        operator = next(
            each for each in events if each["name"] == "aten::convolution" and each["ts"] >= 7e6 + (step - 5) * STEP_US
        )
        for each in events:
            if each["cat"] == "kernel" and 100 * step <= each["args"]["correlation"] < 100 * step + 100:
                each["args"]["External id"] = operator["args"]["External id"]
    recorded = step_of({**trace, "traceEvents": events}, tmp_path)
    assert [(each.name, round(each.seconds / MICRO)) for each in recorded.operations] == [("convolution", 215)]
    # The GPU with most kernels counts.
    trace = new_trace()
    kernel = next(each for each in trace["traceEvents"] if each["cat"] == "kernel")
    trace["traceEvents"].append({**kernel, "args": {**kernel["args"], "device": 3}})
    assert step_of(trace, tmp_path).kernel_s == pytest.approx(215 * MICRO)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not complete JSON: Input data was truncated"),
        (b'{"traceEvents": [{"ph": "X", ', "is not complete JSON"),
        (b"[1, 2]", "expected `object`, got `array`"),
        (b'{"traceEvents": 5}', "expected `array | null`, got `int` - at `$.traceEvents`"),
        (b'{"nodes": []}', "found an execution trace, which --execution-trace names, expected a trace of PyTorch's"),
        (b'{"displayTimeUnit": "ms"}', "found JSON without 'traceEvents'"),
        (b'{"traceEvents": [{"ph": "X", "cat": "v8", "ts": 1, "dur": 2}]}', "none an operator of PyTorch"),
        (b'{"traceEvents": [{"ph": {"a": 1}, "args": [1]}, {}]}', "found 2 events, none an operator of PyTorch"),
        (b"\x1f\x8b\x08\x00cut", "is truncated or damaged"),
    ],
)
def test_files_that_are_no_trace_are_refused_in_one_line(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    assert message in refusal(RecordingError, read_step, path)


AROUND = {"ph": "X", "pid": 1, "tid": 1, "cat": "cpu_op", "name": "aten::to", "ts": 0, "dur": 9e6, "args": {}}


@pytest.mark.parametrize(
    ("category", "change", "more", "message"),
    [
        ("kernel", {"cat": "none"}, 0, "found no kernel of a GPU, expected .*ProfilerActivity.CUDA"),
        ("cuda_runtime", {"tid": 77}, 0, "was launched by an operator"),
        ("kernel", {"dur": 0}, 0, "the kernels of ProfilerStep#6 took no time"),
        ("", {}, 1002, "has more than 1000 calls around aten::to"),
    ],
)
def test_impossible_steps_are_refused(
    category: str, change: dict[str, object], more: int, message: str, tmp_path: Path
) -> None:
    trace = new_trace()
    for each in trace["traceEvents"]:
        each.update(change if each["cat"] == category else {})
    trace["traceEvents"] += [AROUND] * more
    with pytest.raises(RecordingError, match=message):
        step_of(trace, tmp_path)


def test_a_launch_before_the_first_operator_counts(tmp_path: Path) -> None:
    """The whole of a trace without steps begins with it: 15 us later, and 45 us of kernels."""
    host = {"ph": "X", "pid": 1, "tid": 1}
    kernel = {"ph": "X", "pid": 0, "tid": 7, "cat": "kernel", "name": "k"}
    trace = {
        "traceEvents": [
            {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 0, "dur": 2, "args": {"correlation": 1}},
            {**kernel, "ts": 15, "dur": 40, "args": {"correlation": 1, "device": 0, "stream": 7}},
            {**host, "cat": "cpu_op", "name": "aten::add", "ts": 20, "dur": 9, "args": {"External id": 3}},
            {**host, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 22, "dur": 2, "args": {"correlation": 2}},
            {**kernel, "ts": 60, "dur": 5, "args": {"correlation": 2, "device": 0, "stream": 7}},
        ]
    }
    step = step_of(trace, tmp_path)
    found = step.kernel_s, step.attributed_s, step.step.seconds
    assert found == pytest.approx((45 * MICRO, 5 * MICRO, 50 * MICRO))


def test_malformed_events_are_skipped(tmp_path: Path) -> None:
    trace = new_trace()
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::x\n", "ts": 7e6 + 1999, "dur": 0, "tid": 5}
    dims = [[1, "two"], 5, [[2], [True]], [[-3]], [2**80], [2**61]]
    trace["traceEvents"] += [
        {**event, "args": []},
        {**event, "ts": "soon"},
        {**event, "dur": 1e300},
        {**event, "args": {"Input Dims": dims, "Input type": 7, "External id": "one", "Sequence number": -1}},
    ]
    trace["deviceProperties"] = [7, {"id": 0, "totalGlobalMem": -1, "numSms": 3}]
    recorded = step_of(trace, tmp_path)
    assert recorded.trace.gpu is None
    assert recorded.attributed_s == pytest.approx(205 * MICRO)
