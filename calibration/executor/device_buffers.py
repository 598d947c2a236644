"""Buffers of a plan in device memory: flat bytes for copies, tensors for kernels; residents; initial content.

Residents stay allocated between the runs of a plan, as weights in training.
"""

from collections import Counter
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

import torch

from calibration.devices.interface import Device, ReleasesExtents
from calibration.executor.compiled_plan import CompiledPlan
from calibration.kernels.operands import fill_input, fill_state, fill_weights, labels
from calibration.kernels.tensors import Part, shaped_view
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import ExecutionRefused
from vdnnsim.plans.repetition import resident_buffers
from vdnnsim.plans.trace import MemoryCount
from vdnnsim.plans.training_plan import Buffer, BufferKind, TrainingPlan


class Residents:
    """The resident buffers of the current plan of a device.

    Attributes:
        runs: how often the plan was begun since the device last ran another one.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._plan: TrainingPlan | None = None
        self._buffers: AbstractSet[int] = frozenset()
        self._held: dict[int, torch.Tensor] = {}
        self._before = device.in_use()
        self.runs = 0

    def begin(self, plan: TrainingPlan) -> None:
        """Begin a run of a plan; another plan begins with an empty cache, so that what it reserves can be counted."""
        if plan is not self._plan:
            self.release()
            self._plan, self._buffers = plan, resident_buffers(plan)
            self._before = self._device.in_use()
        self.runs += 1

    def release(self) -> None:
        while self._held:
            self._device.release(self._held.popitem()[1])
        self._device.empty_cache()
        self._plan, self._buffers, self.runs = None, frozenset(), 0

    def pop(self, buffer: int) -> torch.Tensor | None:
        """Return the bytes of a resident, None of any other buffer."""
        return self._held.pop(buffer, None)

    def keep(self, buffer: int, taken: torch.Tensor) -> bool:
        """Keep a buffer if it is a resident; return whether it is."""
        if buffer not in self._buffers:
            return False
        self._held[buffer] = taken
        return True

    @property
    def counted(self) -> MemoryCount:
        """Memory in use now beyond that before the plan's first run."""
        return self._device.in_use() - self._before


class DeviceBuffers:
    """The allocated buffers, by id; residents keep their memory between runs.

    Attributes:
        away_bytes: of each buffer, how many bytes of its memory are released.
    """

    def __init__(self, device: Device, forms: Sequence[Part | None], residents: Residents) -> None:
        self._device = device
        self._forms = forms
        self._residents = residents
        # The bytes of each buffer; those of an alias are a view into its storage and not the device's to free.
        self._bytes: dict[int, torch.Tensor] = {}
        self._aliased: set[int] = set()
        self._tensors: dict[int, torch.Tensor] = {}
        self.away_bytes: Counter[int] = Counter()

    @property
    def held(self) -> tuple[int, ...]:
        """The allocated buffers with memory of their own, in the order of their allocation."""
        return tuple(buffer for buffer in self._bytes if buffer not in self._aliased)

    def __getitem__(self, buffer: int) -> torch.Tensor:
        """The tensor of a buffer, in its form; the same object as long as the buffer lives."""
        return self._tensors[buffer]

    def flat(self, buffer: int, extent: range | None = None) -> torch.Tensor:
        return self._bytes[buffer] if extent is None else self._bytes[buffer][extent.start : extent.stop]

    def release_extent(self, buffer: int, extent: range) -> None:
        """Release the memory of an extent of a buffer; its content is lost."""
        assert isinstance(self._device, ReleasesExtents), "refuse_impossible refuses other plans"
        self._device.release_extent(self.flat(buffer, extent))
        self.away_bytes[buffer] += len(extent)

    def allocate_extent(self, buffer: int, extent: range) -> None:
        assert isinstance(self._device, ReleasesExtents), "refuse_impossible refuses other plans"
        self._device.allocate_extent(self.flat(buffer, extent))
        self.away_bytes[buffer] -= len(extent)

    def allocate(self, buffer: int, nbytes: int) -> None:
        """Allocate memory for a buffer, or raise OutOfDeviceMemory where there is no room."""
        stayed = self._residents.pop(buffer)
        self._add(buffer, self._device.allocate(nbytes) if stayed is None else stayed)

    def lay(self, buffer: int, storage: int, nbytes: int) -> None:
        self._add(buffer, self._bytes[storage][:nbytes])
        self._aliased.add(buffer)

    def release(self, buffer: int) -> None:
        """Release a buffer; an alias frees nothing."""
        self._tensors.pop(buffer, None)
        taken = self._bytes.pop(buffer)
        del self.away_bytes[buffer]
        if buffer in self._aliased:
            self._aliased.remove(buffer)
        elif not self._residents.keep(buffer, taken):
            self._device.release(taken)

    def release_all(self) -> None:
        """Release all buffers, after an iteration that failed."""
        for buffer in tuple(self._bytes):
            self.release(buffer)

    def _add(self, buffer: int, taken: torch.Tensor) -> None:
        assert buffer not in self._bytes, f"buffer {buffer} is allocated twice"
        self._bytes[buffer] = taken
        form = self._forms[buffer]
        if form is not None:
            elements = taken.view(form.dtype)
            self._tensors[buffer] = shaped_view(elements, form.shape, channels_last=form.channels_last)


class GivenContent:
    """The content of the given buffers of every plan of a workload, drawn once."""

    def __init__(self, workload: Workload, seed: int, *, channels_last: bool) -> None:
        self._workload = workload
        self._channels_last = channels_last
        self._seed = seed
        self._drawn: dict[tuple[BufferKind, int, int], torch.Tensor] = {}

    def of(self, compiled: CompiledPlan) -> dict[int, torch.Tensor]:
        """Return the content of the given buffers of a plan, by buffer, as flat elements on the host.

        Raises:
            ExecutionRefused: there is none for one of them.
        """
        contents = {}
        seen: Counter[tuple[BufferKind, int]] = Counter()
        storages = compiled.plan.workload.step.storages
        for number, (buffer, form) in enumerate(zip(compiled.plan.buffers, compiled.forms, strict=True)):
            if not buffer.given or buffer.storage is None or form is None:
                continue
            # States of the optimizer are numbered in their order.
            owner = storages[buffer.storage].owner
            key = (buffer.kind, owner, seen[buffer.kind, owner])
            seen[buffer.kind, owner] += 1
            if key not in self._drawn:
                self._drawn[key] = self._draw(compiled.plan, buffer, key, form)
            contents[number] = self._drawn[key]
        return contents

    def _draw(self, plan: TrainingPlan, buffer: Buffer, key: tuple[BufferKind, int, int], form: Part) -> torch.Tensor:
        kind, owner, ordinal = key
        content = torch.empty(torch.Size(form.shape).numel(), dtype=form.dtype)
        graph = self._workload.graph
        match kind:
            case BufferKind.FEATURE_MAP if graph.maps[owner].producer is None:
                fill_input(shaped_view(content, form.shape, channels_last=form.channels_last), self._seed)
            case BufferKind.LABELS:
                content.copy_(labels(self._workload, self._seed))
            case BufferKind.WEIGHT_GRADIENT:
                # As zero_grad leaves those that are kept.
                content.zero_()
            case BufferKind.WEIGHTS:
                fill_weights(graph.layers[owner], content, self._seed, channels_last=self._channels_last)
            case BufferKind.OPTIMIZER_STATE:
                fill_state(graph.layers[owner], ordinal, content, self._seed)
            case _:
                raise ExecutionRefused(f"{plan.policy}: {buffer.name} is given, and there is nothing to fill it with")
        return content
