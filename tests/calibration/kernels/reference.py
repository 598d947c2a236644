"""The reference: one iteration of a workload without any memory management, by the same kernels as the executor."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch

from calibration.kernels.interface import KernelLibrary, KernelTensors
from calibration.kernels.operands import fill_input, fill_state, fill_weights, labels
from calibration.kernels.tensors import dtype_of, map_view
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.workload import Workload

ChooseAlgorithm = Callable[[Layer, Phase], str | None]
"""Names the algorithm for a phase of a layer; None for PyTorch's own."""


@dataclass(frozen=True, slots=True)
class ReferenceRun:
    loss: float
    gradients: Mapping[int, torch.Tensor]
    weights: Mapping[int, torch.Tensor]


def run_reference(
    workload: Workload,
    library: KernelLibrary,
    choose: ChooseAlgorithm = lambda _layer, _phase: None,
    *,
    device_type: str = "cpu",
    seed: int = 0,
) -> ReferenceRun:
    """Run one iteration by the kernels of a library of that device, and return what it computed."""
    memory = _Memory.filled(workload, device_type, seed, channels_last=library.channels_last)
    graph = workload.graph
    with torch.no_grad():
        order = [(layer, Phase.FORWARD) for layer in graph.layers]
        order += [(layer, phase) for layer in reversed(graph.layers) for phase in layer.backward_phases]
        order += [(layer, Phase.UPDATE) for layer in workload.updated_layers]
        for layer, phase in order:
            algorithm = choose(layer, phase)
            offered = library.kernels(workload, layer, phase)
            kernel = next(each for each in offered if algorithm in (None, each.algorithm))
            workspace = torch.empty(kernel.passed_bytes, dtype=torch.uint8, device=device_type)
            kernel.run(replace(memory.operands(workload, layer), workspace=workspace))
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
            maps={each.index: empty_map(each.index) for each in graph.maps},
            gradients={each.index: empty_map(each.index) for each in graph.maps if each.needs_gradient},
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
