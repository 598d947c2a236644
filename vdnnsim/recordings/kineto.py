"""Traces of PyTorch's profiler as plain events, in all formats of Kineto.

Formats differ in the names of categories and arguments (`Operator` and `cpu_op`, `Input dims` and `Input Dims`), and by
options of the profiler; times are microseconds, whole ones in old formats. Flows, instants and the like are left out.
Source: Kineto, `libkineto/src/output_json.cpp`; PyTorch, `torch/csrc/autograd/profiler_kineto.cpp`.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

import msgspec

from vdnnsim.errors import RecordingError
from vdnnsim.files.messages import LONGEST_SHOWN, file_name, one_line, printable
from vdnnsim.recordings.recording_file import read_json

Dims = tuple[tuple[int, ...], ...]
"""Sizes of each argument that is a tensor; of a list of tensors, those of each."""

_MICRO: Final = 1e-6
_LONGEST_NAME: Final = 200
_PROFILER: Final = "expected a trace of PyTorch's profiler, as `export_chrome_trace` writes it"
_MODULE: Final = "nn.Module: "
_ANNOTATION: Final = re.compile(r"ProfilerStep#?\d*$|Optimizer\.|enumerate\(DataLoader\)")


class Activity(Enum):
    """The kind of an event on a thread of the host or a stream of the GPU."""

    OPERATOR = "operator"
    ANNOTATION = "annotation"
    MODULE = "module"
    CALL = "call of CUDA"
    KERNEL = "kernel"
    COPY = "copy"
    FILL = "fill"


_CATEGORIES: Final = {
    "operator": Activity.OPERATOR,
    "cpu_op": Activity.OPERATOR,
    "user_annotation": Activity.ANNOTATION,
    "python_function": Activity.MODULE,
    "runtime": Activity.CALL,
    "cuda_runtime": Activity.CALL,
    "cuda_driver": Activity.CALL,
    "kernel": Activity.KERNEL,
    "memcpy": Activity.COPY,
    "gpu_memcpy": Activity.COPY,
    "memset": Activity.FILL,
    "gpu_memset": Activity.FILL,
}
ON_GPU: Final = frozenset({Activity.KERNEL, Activity.COPY, Activity.FILL})


@dataclass(frozen=True, slots=True)
class Event:
    """An event with a duration; times in seconds from the first event of the trace.

    Attributes:
        thread: of the host, or stream of the GPU.
        correlation: id of a call of CUDA and of its kernel, copy or fill; None where there is none.
        external: id of an operator and of its kernels, copies and fills.
        sequence: number that autograd gave an operator and its backward.
        record: id of an operator in an execution trace.
        dims: sizes of an operator's arguments, empty for other arguments than tensors; None without shapes.
        types: of these arguments in C++; empty in the oldest format.
        values: of the other arguments, as text.
        nbytes: of a copy or a fill.
    """

    activity: Activity
    name: str
    thread: str
    start_s: float
    end_s: float
    correlation: int | None = None
    external: int | None = None
    sequence: int | None = None
    record: int | None = None
    dims: Dims | None = None
    types: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    nbytes: int = 0

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True)
class GpuProperties:
    """A GPU as a trace describes it."""

    name: str
    memory_bytes: int
    multiprocessors: int
    capability: str


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace, with events by their start, outer ones first.

    Attributes:
        gpu: with the most kernels; None if the format lacks it.
        stacks: whether Python was recorded as well, which slows the host down.
    """

    name: str
    events: tuple[Event, ...]
    gpu: GpuProperties | None
    stacks: bool


class _Arguments(msgspec.Struct, rename={"dims": "Input Dims", "old_dims": "Input dims", "types": "Input type"}):
    dims: Any = None
    old_dims: Any = None
    types: Any = None
    values: Any = msgspec.field(default=None, name="Concrete Inputs")
    sequence: Any = msgspec.field(default=None, name="Sequence number")
    record: Any = msgspec.field(default=None, name="Record function id")
    external: Any = msgspec.field(default=None, name="External id")
    old_external: Any = msgspec.field(default=None, name="external id")
    stack: Any = msgspec.field(default=None, name="Call stack")
    correlation: Any = None
    bytes: Any = None
    device: Any = None
    stream: Any = None


class _Event(msgspec.Struct):
    ph: Any = ""
    cat: Any = ""
    name: Any = ""
    tid: Any = ""
    ts: Any = None
    dur: Any = None
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _File(msgspec.Struct):
    events: list[_Event] | None = msgspec.field(default=None, name="traceEvents")
    devices: Any = msgspec.field(default=None, name="deviceProperties")
    nodes: msgspec.Raw = msgspec.Raw()


def read_trace(path: Path) -> Trace:
    """Read a trace.

    Raises:
        RecordingError: the file cannot be read, exceeds 1 GiB unpacked, or is no trace of PyTorch's profiler.
    """
    name = file_name(path)
    file = read_json(path, _File, _PROFILER)
    events = file.events
    if events is None:
        found = "an execution trace, which --execution-trace names" if file.nodes else "JSON without 'traceEvents'"
        raise RecordingError(f"{name}: found {found}, {_PROFILER}")
    read = list(_read(events))
    if not any(each.activity is Activity.OPERATOR and "::" in each.name for each, *_ in read):
        raise RecordingError(f"{name}: found {len(events):,} events, none an operator of PyTorch, {_PROFILER}")
    read.sort(key=lambda each: (each[0].start_s, each[0].activity in ON_GPU, -each[0].end_s))
    devices = Counter(device for each, device, _ in read if each.activity is Activity.KERNEL)
    used = max(devices, key=lambda each: devices[each], default=0)
    return Trace(
        name=name,
        events=tuple(each for each, device, _ in read if each.activity not in ON_GPU or device == used),
        gpu=_gpu(file.devices, used),
        stacks=any(stack for *_, stack in read),
    )


def _read(events: list[_Event]) -> Iterator[tuple[Event, int, bool]]:
    """Yield the events with a duration, each with its GPU and whether Python was recorded with it."""
    timed = [each for each in events if each.ph == "X" and _is_time(each.ts) and _is_time(each.dur)]
    first = min((float(each.ts) for each in timed), default=0.0)
    decoder = msgspec.json.Decoder(_Arguments)
    for each in timed:
        activity = _CATEGORIES.get(str(each.cat).lower())
        name = str(each.name)[:_LONGEST_NAME]
        name = name if name.isprintable() else printable(name)
        if activity is None or (activity is Activity.MODULE and not name.startswith(_MODULE)):
            continue
        if activity is Activity.OPERATOR and _ANNOTATION.match(name):
            activity = Activity.ANNOTATION
        try:
            found = decoder.decode(each.args)
        except (msgspec.MsgspecError, ValueError, RecursionError):  # of other types, not UTF-8, nested too deep
            found = _Arguments()
        start = float(each.ts) - first
        device = _integer(found.device) or 0
        dims, types = _arguments(found.dims if found.dims is not None else found.old_dims, _texts(found.types))
        event = Event(
            activity=activity,
            name=name.removeprefix(_MODULE) if activity is Activity.MODULE else name,
            thread=str(found.stream if activity in ON_GPU and found.stream is not None else each.tid),
            start_s=start * _MICRO,
            end_s=(start + max(0.0, float(each.dur))) * _MICRO,
            correlation=_integer(found.correlation),
            external=_integer(found.external if found.external is not None else found.old_external),
            sequence=_integer(found.sequence),
            record=_integer(found.record),
            dims=dims,
            types=types,
            values=_texts(found.values),
            nbytes=max(0, _integer(found.bytes) or 0),
        )
        yield event, device, activity is Activity.MODULE or bool(found.stack)


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e18


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 63 else None


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(each)[:LONGEST_SHOWN] for each in value) if isinstance(value, list) else ()


def _arguments(dims: object, types: tuple[str, ...]) -> tuple[Dims | None, tuple[str, ...]]:
    """Return sizes and types of arguments, lists of tensors expanded; sizes of other arguments are empty."""
    if not isinstance(dims, list):
        return None, types
    sizes: list[tuple[int, ...]] = []
    element_types: list[str] = []
    for position, each in enumerate(dims):
        of_list = isinstance(each, list) and each and all(isinstance(one, list) for one in each)
        sizes.extend(_sizes(one) for one in (each if of_list else [each]))
        element_types.extend(types[position : position + 1] * (len(each) if of_list else 1))
    return tuple(sizes), tuple(element_types)


def _sizes(value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        return ()
    sizes = tuple(_integer(each) for each in value)
    return tuple(each for each in sizes if each is not None and each >= 0) if None not in sizes else ()


def _gpu(devices: object, number: int) -> GpuProperties | None:
    for each in devices if isinstance(devices, list) else []:
        if isinstance(each, dict) and each.get("id") == number:
            memory, units = _integer(each.get("totalGlobalMem")), _integer(each.get("numSms"))
            if memory and units and memory > 0 and units > 0:
                capability = f"{each.get('computeMajor')}.{each.get('computeMinor')}"
                name = one_line(str(each.get("name")))[:LONGEST_SHOWN]
                return GpuProperties(name, memory, units, capability)
    return None
