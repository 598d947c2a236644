"""The reference: one iteration of a workload without any memory management, by the same kernels as the executor.

Every map, gradient and weight has memory of its own from the start to the end. What an executor computes under some
plan must be this, bit for bit.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch

from calibration.kernels.interface import Kernel, KernelLibrary, KernelTensors
from calibration.kernels.operands import fill_input, fill_state, fill_weights, labels
from calibration.kernels.tensors import dtype_of, map_view
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.errors import ExecutionRefused

ChooseAlgorithm = Callable[[Layer, Phase], str | None]
"""Names the algorithm for a phase of a layer; None for the framework's own."""


@dataclass(frozen=True, slots=True)
class ReferenceRun:
    """What an iteration computed.

    Attributes:
        gradients: dW by index of its layer, flat, on the host; likewise `weights` after the update, where there is one.
    """

    loss: float
    gradients: Mapping[int, torch.Tensor]
    weights: Mapping[int, torch.Tensor]


def framework_algorithms(_layer: Layer, _phase: Phase) -> str | None:
    """Choose the framework's own algorithm everywhere."""
    return None


def run_reference(
    workload: Workload,
    library: KernelLibrary,
    choose: ChooseAlgorithm = framework_algorithms,
    *,
    device_type: str = "cpu",
    seed: int = 0,
) -> ReferenceRun:
    """Run one iteration and return what it computed.

    Args:
        workload: the network and what is done with it.
        library: the kernels, of the same device; their layout is that of maps and filters.
        choose: the algorithm of each kernel.
        device_type: PyTorch's word, `cpu` or `cuda`.
        seed: of what stands in memory at the beginning.

    Raises:
        ExecutionRefused: the library lacks a kernel, or the algorithm chosen for it.
    """
    memory = _Memory.filled(workload, device_type, seed, channels_last=library.channels_last)
    graph = workload.graph
    with torch.no_grad():
        for layer in graph.layers:
            _run(workload, library, choose, memory, layer, (Phase.FORWARD,))
        if workload.mode is Mode.TRAINING:
            for layer in reversed(graph.layers):
                _run(workload, library, choose, memory, layer, layer.backward_phases)
            for layer in workload.updated_layers:
                _run(workload, library, choose, memory, layer, (Phase.UPDATE,))
    return ReferenceRun(
        loss=float(memory.loss.cpu()),
        gradients={index: gradient.cpu() for index, gradient in memory.weight_gradients.items()},
        weights={index: weights.cpu() for index, weights in memory.weights.items()},
    )


@dataclass(frozen=True, slots=True)
class _Memory:
    """Every tensor of an iteration, by index of its map or layer."""

    maps: Mapping[int, torch.Tensor]
    gradients: Mapping[int, torch.Tensor]
    weights: Mapping[int, torch.Tensor]
    weight_gradients: Mapping[int, torch.Tensor]
    states: Mapping[int, tuple[torch.Tensor, ...]]
    statistics: Mapping[int, torch.Tensor]
    labels: torch.Tensor
    loss: torch.Tensor

    @classmethod
    def filled(cls, workload: Workload, device_type: str, seed: int, *, channels_last: bool) -> "_Memory":
        """Return the memory as it is when an iteration begins; what it does not hold yet is not a number."""
        dtype = dtype_of(workload.element_type)
        graph = workload.graph

        def empty_map(index: int) -> torch.Tensor:
            flat = torch.full(
                (workload.map_bytes(index) // dtype.itemsize,), torch.nan, dtype=dtype, device=device_type
            )
            shape = graph.maps[index].shape
            return map_view(flat.view(torch.uint8), shape, workload.batch_size, dtype, channels_last=channels_last)

        def empty_weights(layer: Layer) -> torch.Tensor:
            return torch.full((layer.parameters,), torch.nan, dtype=dtype, device=device_type)

        weighted = [layer for layer in graph.layers if layer.parameters]
        memory = cls(
            maps={feature_map.index: empty_map(feature_map.index) for feature_map in graph.maps},
            gradients={
                feature_map.index: empty_map(feature_map.index)
                for feature_map in graph.maps
                if feature_map.needs_gradient
            },
            weights={layer.index: empty_weights(layer) for layer in weighted},
            weight_gradients={layer.index: empty_weights(layer) for layer in weighted},
            states={
                layer.index: tuple(empty_weights(layer) for _ in range(workload.optimizer.states)) for layer in weighted
            },
            statistics={
                layer.index: torch.full((workload.statistics_bytes(layer) // 4,), torch.nan, device=device_type)
                for layer in graph.layers
                if workload.statistics_bytes(layer)
            },
            labels=labels(workload, seed).to(device_type),
            loss=torch.full((1,), torch.nan, device=device_type),
        )
        fill_input(memory.maps[0], seed)
        for layer in weighted:
            fill_weights(layer, memory.weights[layer.index], seed, channels_last=channels_last)
            for number, state in enumerate(memory.states[layer.index]):
                fill_state(layer, number, state, seed)
        return memory

    def operands(self, workload: Workload, layer: Layer) -> KernelTensors:
        """Return all tensors of a layer."""
        return KernelTensors(
            inputs=tuple(self.maps[x] for x in layer.inputs),
            output=self.maps[layer.output],
            input_gradients=tuple(self.gradients.get(x) for x in layer.inputs),
            accumulates=tuple(workload.accumulates(layer, x) for x in layer.inputs),
            output_gradient=self.gradients.get(layer.output),
            weights=self.weights.get(layer.index),
            weight_gradient=self.weight_gradients.get(layer.index),
            states=self.states.get(layer.index, ()),
            statistics=self.statistics.get(layer.index),
            labels=self.labels,
            loss=self.loss,
        )


def _run(
    workload: Workload,
    library: KernelLibrary,
    choose: ChooseAlgorithm,
    memory: _Memory,
    layer: Layer,
    phases: tuple[Phase, ...],
) -> None:
    for phase in phases:
        kernel = _chosen(library.kernels(workload, layer, phase), choose(layer, phase), layer, phase)
        tensors = memory.operands(workload, layer)
        workspace = torch.empty(kernel.passed_bytes, dtype=torch.uint8, device=memory.loss.device)
        kernel.run(replace(tensors, workspace=workspace))


def _chosen(kernels: tuple[Kernel, ...], algorithm: str | None, layer: Layer, phase: Phase) -> Kernel:
    for kernel in kernels:
        if algorithm in (None, kernel.algorithm):
            return kernel
    names = ", ".join(kernel.algorithm for kernel in kernels)
    raise ExecutionRefused(f"{phase.value} of {layer.name}: no algorithm {algorithm!r}; there are {names}")
