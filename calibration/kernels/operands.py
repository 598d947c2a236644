"""Operands of one phase of one layer alone, in fresh memory: to measure a kernel outside of any network."""

import torch

from calibration.kernels.initial import fill
from calibration.kernels.port import KernelTensors
from calibration.kernels.tensors import dtype_of, map_view
from vdnnsim.dnn.convolutional import BatchNormalization, Pooling, SoftmaxLoss
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Workload

_SEED = 0


def operands_alone(
    workload: Workload, layer: Layer, phase: Phase, device_type: str, *, channels_last: bool
) -> KernelTensors:
    """Return everything that a phase of a layer may touch but its workspace, filled with values of the usual size.

    A map that a layer in place shares is one tensor here too.
    """
    dtype = dtype_of(workload.element_type)

    def filled_map(shape: MapShape, what: str) -> torch.Tensor:
        nbytes = shape.elements * workload.batch_size * dtype.itemsize
        flat = torch.empty(nbytes, dtype=torch.uint8, device=device_type)
        fill(flat.view(dtype), _SEED, f"{what} {layer.name}", deviation=1.0)
        return map_view(flat, shape, workload.batch_size, dtype, channels_last=channels_last)

    def filled(elements: int, what: str, kind: torch.dtype = dtype) -> torch.Tensor:
        # Positive, for a state of Adam is a mean of squares, and an inverse deviation is above zero.
        flat = torch.empty(elements, dtype=kind, device=device_type)
        fill(flat, _SEED, f"{what} {layer.name}", deviation=0.1)
        return flat.abs_()

    def gradients() -> tuple[torch.Tensor | None, ...]:
        maps = workload.graph.maps
        return tuple(
            filled_map(shape, f"dX {position}") if maps[x].needs_gradient else None
            for position, (x, shape) in enumerate(zip(layer.inputs, layer.in_shapes, strict=True))
        )

    def statistics() -> torch.Tensor | None:
        if isinstance(layer.operator, BatchNormalization):
            return filled(2 * layer.in_shapes[0].channels, "statistics", torch.float32)
        # The indices of a pooling, each that of the first element.
        nbytes = workload.statistics_bytes(layer) if isinstance(layer.operator, Pooling) else 0
        return torch.zeros(nbytes // torch.float32.itemsize, device=device_type) if nbytes else None

    inputs = tuple(filled_map(shape, f"X {position}") for position, shape in enumerate(layer.in_shapes))
    output = inputs[0] if layer.in_place else filled_map(layer.out_shape, "Y")
    is_loss = isinstance(layer.operator, SoftmaxLoss)
    input_gradients = gradients() if phase.is_backward else ()
    output_gradient = None
    if phase.is_backward and not is_loss:
        output_gradient = input_gradients[0] if layer.in_place else filled_map(layer.out_shape, "dY")
    return KernelTensors(
        inputs=inputs,
        output=output,
        input_gradients=input_gradients,
        accumulates=tuple(workload.accumulates(layer, x) for x in layer.inputs),
        output_gradient=output_gradient,
        weights=filled(layer.parameters, "W") if layer.parameters else None,
        weight_gradient=filled(layer.parameters, "dW") if layer.parameters else None,
        states=tuple(filled(layer.parameters, f"state {n}") for n in range(workload.optimizer.states))
        if layer.parameters
        else (),
        statistics=statistics(),
        labels=torch.zeros(workload.batch_size, dtype=torch.int64, device=device_type) if is_loss else None,
        loss=torch.zeros(1, dtype=torch.float32, device=device_type) if is_loss else None,
    )
