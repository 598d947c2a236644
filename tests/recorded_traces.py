"""Traces of the profiler written by hand, in its oldest and newest format.

Three steps of 1000 us each, of which all are alike: a convolution (2 images of 3x8x8, 4 filters of 3x3, bias) forward
and backward, and the update of its weights. Of each step, in microseconds from its begin:

    thread 1                               thread 2 (autograd)         GPU
    0-10    the data loader
    12-18   copy of the batch                                          15-35    HtoD, 1536 B
    20-100  conv2d > convolution                                       50-150   the convolution
                                           300-400 the node of it      320-380  gradient of the input
                                                                       390-430  gradient of the weights
                                           405-407 no operator         430-440  what adds up gradients
    500-600 Optimizer.step > add_                                      520-525  the update

Of 215 us of kernels in a step 205 are of operators. A step begins, on the GPU, when the update of the one before ended.
"""

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

STEP_US = 1000
_IMAGES, _FILTERS, _BIAS, _OUTPUTS = [2, 3, 8, 8], [4, 3, 3, 3], [4], [2, 4, 8, 8]
_VALUES = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
_BACKWARD_VALUES = ["", "", "", "[4]", *_VALUES[3:], "[True, True, True]"]
Event = dict[str, Any]


def new_trace(**without: bool) -> dict[str, Any]:
    """Return a trace as PyTorch 2.x writes it.

    Args:
        without: `shapes=True` leaves sizes out, `steps=True` the marks of steps, `kernels=True` what ran on the GPU,
            `sequences=True` the numbers of autograd.
    """
    events = [each for step in range(3) for each in _step(step + 5, 7e6 + step * STEP_US)]
    if without.get("steps"):
        events = [each for each in events if "ProfilerStep" not in each["name"]]
    if without.get("kernels"):
        events = [each for each in events if each["cat"] not in {"kernel", "gpu_memcpy"}]
    dropped = [
        *(["Input Dims", "Input type", "Concrete Inputs"] if without.get("shapes") else []),
        *(["Sequence number"] if without.get("sequences") else []),
    ]
    for each in events:
        each["args"] = {key: value for key, value in each["args"].items() if key not in dropped}
    gpu = {"id": 0, "name": "Tesla T4", "totalGlobalMem": 15 << 30, "numSms": 40, "computeMajor": 7, "computeMinor": 5}
    flow = {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 1, "ts": 7e6, "pid": 1, "tid": 1}
    return {"schemaVersion": 1, "deviceProperties": [gpu], "traceEvents": [flow, *events]}


def old_trace() -> dict[str, Any]:
    """Return the same in the format of PyTorch 1.8: other names, no numbers of autograd, types, values, properties."""
    words = {"cpu_op": "Operator", "user_annotation": "Operator", "cuda_runtime": "Runtime", "kernel": "Kernel"}
    names = {"aten::convolution_backward": "aten::cudnn_convolution_backward"}
    nodes = {"ConvolutionBackward0": "CudnnConvolutionBackward"}
    events = []
    for each in new_trace()["traceEvents"]:
        if each["cat"] == "python_function":
            continue
        name, args = names.get(each["name"], nodes.get(each["name"], each["name"])), dict(each.get("args", {}))
        old = {"Input dims": args["Input Dims"]} if "Input Dims" in args else {}
        if name in names.values():
            old["Input dims"] = [_IMAGES, _OUTPUTS, _FILTERS]
        old |= {key: args[key] for key in ("External id", "correlation", "device", "stream", "bytes") if key in args}
        category = words.get(each["cat"], {"gpu_memcpy": "Memcpy"}.get(each["cat"], "async"))
        events.append({**each, "name": name, "cat": category, "args": old})
        if name == "aten::convolution":
            events.append({**events[-1], "name": "aten::cudnn_convolution"})
    return {"schemaVersion": 1, "traceEvents": events}


def execution_trace() -> dict[str, Any]:
    """Return the storages of the same run: batch 1, filters 2, bias 3, output 4, gradients 5 to 8, no momentum.

    The output is storage 4 in every step, as reused memory is; the gradient of the filters is 7.
    """
    nodes: list[Event] = []
    for step in range(3):
        batch, filters, bias = _tensor(1, 384), _tensor(2, 108), _tensor(3, 4)
        output, above = _tensor(4, 512), _tensor(5, 512)
        gradients = [_tensor(6, 384), _tensor(7, 108), _tensor(8, 4)]
        records = [10 * (step + 5) + each for each in range(4)]
        nodes += [
            _node(records[0], "aten::convolution", [batch, filters, bias], [output]),
            _node(records[3], "aten::empty", [], [above]),
            _node(records[1], "aten::convolution_backward", [above, batch, filters], gradients),
            _node(records[2], "aten::add_", [filters, gradients[1]], [filters]),
        ]
    for number, node in enumerate(nodes):
        node["id"] = number + 3
    # No two nodes share a tensor, so that a test may change one.
    return {"schema": "1.1.1-chakra.0.0.4", "nodes": json.loads(json.dumps(nodes))}


def write(trace: object, path: Path) -> Path:
    """Write a trace, packed where the name says so, and return the path."""
    data = json.dumps(trace).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def _tensor(storage: int, elements: int) -> list[Any]:
    return [storage + 100, storage, 0, elements, 4, "cuda:0"]


def _node(record: int, name: str, inputs: Sequence[object], outputs: Sequence[object]) -> Event:
    attributes = [{"name": "rf_id", "type": "uint64", "value": record}]
    sides = ({"values": list(each), "shapes": [], "types": []} for each in (inputs, outputs))
    return {"name": name, "ctrl_deps": 1, **dict(zip(("inputs", "outputs"), sides, strict=True)), "attrs": attributes}


def _step(number: int, begin: float) -> Iterator[Event]:
    ids = iter(range(100 * number, 100 * number + 100))
    record = 10 * number

    def host(category: str, name: str, thread: int, span: tuple[float, float], **args: object) -> Event:
        return _event(category, name, 1, thread, begin, span, args)

    def launch(thread: int, at: float, name: str, span: tuple[float, float], **args: object) -> Iterator[Event]:
        correlation = next(ids)
        category = "gpu_memcpy" if "Memcpy" in name else "kernel"
        call = "cudaMemcpyAsync" if category == "gpu_memcpy" else "cudaLaunchKernel"
        yield host("cuda_runtime", call, thread, (at, at + 2), correlation=correlation)
        found = {"correlation": correlation, "device": 0, "stream": 7, **args}
        yield _event(category, name, 0, 7, begin, span, found)

    def operator(name: str, thread: int, span: tuple[float, float], **args: object) -> Event:
        return _event("cpu_op", name, 1, thread, begin, span, {**args, "External id": next(ids)})

    yield host("user_annotation", f"ProfilerStep#{number}", 1, (0, STEP_US))
    yield host("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1, (0, 10))
    yield operator("aten::to", 1, (12, 18))
    yield from launch(1, 13, "Memcpy HtoD (Pageable -> Device)", (15, 35), bytes=1536)
    yield host("python_function", "nn.Module: Conv2d_0", 1, (19, 110))
    dims = {"Input Dims": [_IMAGES, _FILTERS, _BIAS, [], [], []], "Input type": ["float"] * 3, "Sequence number": 40}
    yield operator("aten::conv2d", 1, (20, 100), **dims)
    named = {**dims, "Concrete Inputs": _VALUES, "Record function id": record}
    yield operator("aten::convolution", 1, (22, 98), **named)
    yield from launch(1, 40, "implicit_convolve_sgemm", (50, 150))
    node = {"Sequence number": 40, "Input Dims": [_OUTPUTS], "Fwd thread id": 1}
    yield operator("ConvolutionBackward0", 2, (300, 400), **node)
    sizes = {"Input Dims": [_OUTPUTS, _IMAGES, _FILTERS], "Input type": ["float"] * 3}
    backward = {**sizes, "Concrete Inputs": _BACKWARD_VALUES, "Record function id": record + 1}
    yield operator("aten::convolution_backward", 2, (302, 398), **backward)
    yield from launch(2, 310, "cudnn::dgrad_engine", (320, 380))
    yield from launch(2, 350, "cudnn::wgrad_alg0_engine", (390, 430))
    yield from launch(2, 405, "vectorized_elementwise_kernel", (430, 440))
    yield host("user_annotation", "Optimizer.step#SGD.step", 1, (500, 600))
    update = {"Input Dims": [_FILTERS, _FILTERS, []], "Input type": ["float"] * 2, "Record function id": record + 2}
    yield operator("aten::add_", 1, (510, 530), **update)
    yield from launch(1, 512, "vectorized_elementwise_kernel", (520, 525))


def _event(
    category: str, name: str, process: int, thread: int, begin: float, span: tuple[float, float], args: dict[str, Any]
) -> Event:
    start, end = span
    times = {"ts": begin + start, "dur": end - start}
    return {"ph": "X", "cat": category, "name": name, "pid": process, "tid": thread, **times, "args": args}
