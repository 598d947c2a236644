"""`save_on_cpu`: PyTorch's offloading of saved tensors, `torch.autograd.graph.save_on_cpu(pin_memory=True)`.

Every tensor that autograd saves is offloaded when it is packed, and prefetched when backward unpacks it. Both copies
are on the stream of the kernels: nothing overlaps. A tensor that two layers save, as a rectifier its output and the
next convolution its input, is copied once for each of them; backward frees it after the layer. Source: documentation
and source of PyTorch 2, torch.autograd.graph.save_on_cpu, whose hook packs each saved tensor by itself.

Assumptions:

- Pinned host memory is cached, as it is from the second iteration on.
- An offload ends before the next kernel begins, a prefetch begins after the last kernel has ended.
- Saved tensors are those of autograd, with the indices of max pooling (`SavingRule.AUTOGRAD`), but no labels, which the
  loop holds, and no W, which `save_on_cpu` copies unless users exclude parameters by a hook of their own. What no
  backward unpacks stays where something still reads it, as the batch of a branch that the loss does not depend on.

`overlap: true` is what the hooks of torchtune and of TransformerEngine do with a stream of their own: every tensor is
copied once, after the last layer that reads it in forward, beside the forward of the next layer, at whose end it is
released; it is prefetched beside the backward of the layer before the one that reads it.
"""

from collections import Counter
from collections.abc import Iterable
from typing import ClassVar

from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.plans.liveness import last_forward_use
from vdnnsim.plans.schedule import (
    Offload,
    Prefetch,
    ScheduleStep,
    Wait,
    backward_layers,
    backward_of,
    feature_maps,
    forward,
    update,
)
from vdnnsim.plans.training_plan import BufferKind, TrainingPlan
from vdnnsim.policies.interface import DecidedBy, Setting
from vdnnsim.policies.pytorch import PyTorchLoop


class SaveOnCpu(PyTorchLoop, frozen=True, kw_only=True):
    """Copy all that autograd saves; `overlap` is whether copies run beside kernels."""

    name: ClassVar[str] = "save_on_cpu"
    summary: ClassVar[str] = "copies all that autograd saves to the host and back (PyTorch's save_on_cpu)"
    decided_by: ClassVar[DecidedBy] = DecidedBy.COSTS

    overlap: bool = False

    def plan(self, setting: Setting) -> TrainingPlan:
        workload = self.loop(setting.workload)
        steps: list[ScheduleStep] = []
        if workload.mode is Mode.INFERENCE:
            steps += forward(workload)
        elif self.overlap:
            steps += _overlapped(workload)
        else:
            steps += _synchronous(workload)
        return self.lowered(setting, steps, workload=workload)


def saved_by(workload: Workload, layer: Layer) -> list[int]:
    """Return the storages that a layer saves for its backward, labels and empty ones aside."""
    storages, operations = workload.step.storages, workload.step.operations_of(layer.index, Phase.FORWARD)
    saved = dict.fromkeys(each for operation in operations for each in operation.saves)
    return [each for each in saved if storages[each].kind is not BufferKind.LABELS and storages[each].nbytes]


def _synchronous(workload: Workload) -> list[ScheduleStep]:
    numbers: Counter[int] = Counter()
    taken: list[list[tuple[int, int]]] = [[] for _ in workload.graph.layers]
    steps: list[ScheduleStep] = []
    for run in forward(workload):
        steps.append(run)
        for what in saved_by(workload, run.layer):
            wanted_by = _wanted_by(workload, run.layer, what)
            if not workload.graph.layers[wanted_by].backward_phases and _is_used_after(workload, run.layer, what):
                continue
            steps += [Offload((what,), run.layer, copy=numbers[what]), Wait((what,))]
            taken[wanted_by].append((what, numbers[what]))
            numbers[what] += 1
    for layer in backward_layers(workload):
        for what, copy in taken[layer.index]:
            steps += [Prefetch((what,), layer, layer.backward_phases[0], on_demand=True, copy=copy), Wait((what,))]
        steps += backward_of(layer)
    return [*steps, *update(workload)]


def _wanted_by(workload: Workload, layer: Layer, what: int) -> int:
    """Return the layer whose backward reads what a layer saved: itself, or of a checkpoint the first reader."""
    if layer.backward_phases:
        return layer.index
    storage, step = workload.step.storages[what], workload.step
    if storage.kind is BufferKind.FEATURE_MAP:
        return max(workload.graph.maps[storage.owner].saved_for, default=layer.index)
    backward = (each for each in step.operations if each.phase.is_backward)
    readers = (each.layer for each in backward if storage in step.storages_of(each.operands))
    return max(readers, default=layer.index)


def _is_used_after(workload: Workload, layer: Layer, what: int) -> bool:
    """Whether a storage that a layer saved, which has no backward, is read or held after its forward."""
    later = (each for each in workload.step.operations if each.layer > layer.index or each.phase.is_backward)
    return any(what in (*(one.memory for one in each.operands), *each.holds) for each in later)


def _overlapped(workload: Workload) -> list[ScheduleStep]:
    layers, runs, storages = workload.graph.layers, forward(workload), workload.step.storages
    offloaded: list[list[int]] = [[] for _ in layers]
    prefetched: list[list[int]] = [[] for _ in layers]
    for each in workload.graph.maps:
        if each.saved_for:
            offloaded[last_forward_use(each)].extend(feature_maps(workload, each.index))
            prefetched[max(each.saved_for)].extend(feature_maps(workload, each.index))
    for run in runs:
        saved = saved_by(workload, run.layer)
        statistics = [each for each in saved if storages[each].kind is not BufferKind.FEATURE_MAP]
        offloaded[run.layer.index] += statistics
        prefetched[run.layer.index] += statistics
    steps: list[ScheduleStep] = []
    under_way: list[int] = []
    for run in runs:
        steps += [run, *_wait_for(under_way)]
        under_way = offloaded[run.layer.index]
        steps += [Offload((what,), run.layer) for what in under_way]
    steps += _wait_for(under_way)
    backward = backward_layers(workload)
    wanted = [prefetched[layer.index] for layer in backward]
    steps += [Prefetch((what,), backward[0], backward[0].backward_phases[0], on_demand=True) for what in wanted[0]]
    for position, layer in enumerate(backward):
        if position + 1 < len(backward):
            phase = layer.backward_phases[0]
            steps += [Prefetch((each,), layer, phase, on_demand=False) for each in wanted[position + 1]]
        steps += backward_of(layer)
    return [*steps, *update(workload)]


def _wait_for(what: Iterable[int]) -> list[ScheduleStep]:
    return [Wait((each,)) for each in what]
