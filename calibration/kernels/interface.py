"""What a kernel is to the executor and to the calibrator: an algorithm, the workspace it wants, a function to call."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import torch

from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.step import Access, Operand, Role
from vdnnsim.dnn.workload import Workload


@dataclass(frozen=True, slots=True)
class KernelTensors:
    """What one kernel works on; all lie in memory of the caller. What a phase does not touch is None or empty.

    Attributes:
        inputs: the feature maps X, each (N, C, H, W) in the element type of the workload.
        output: the feature map Y; the very tensor of X where the layer works in place. Of the loss, log-probabilities.
        input_gradients: for each input its dX, None where it needs no gradient.
        accumulates: for each input whether dX is added to what stands there.
        output_gradient: dY; the very tensor of dX where the layer works in place.
        weights, weight_gradient: W and dW, flat, of as many elements as the layer has parameters; the bias at the end.
        states: the states of the optimizer, each like W.
        statistics: mean and inverse deviation of a batch normalization, flat, 2 C elements of float32.
        labels: the class of each image, (N,) of int64.
        loss: one element of float32.
        workspace: what the caller took for the kernel, flat bytes; None if the kernel asked for none.
    """

    inputs: tuple[torch.Tensor, ...] = ()
    output: torch.Tensor | None = None
    input_gradients: tuple[torch.Tensor | None, ...] = ()
    accumulates: tuple[bool, ...] = ()
    output_gradient: torch.Tensor | None = None
    weights: torch.Tensor | None = None
    weight_gradient: torch.Tensor | None = None
    states: tuple[torch.Tensor, ...] = ()
    statistics: torch.Tensor | None = None
    labels: torch.Tensor | None = None
    loss: torch.Tensor | None = None
    workspace: torch.Tensor | None = None

    @classmethod
    def of(
        cls, layer: Layer, phase: Phase, operands: Iterable[Operand], tensor: Callable[[int], torch.Tensor]
    ) -> "KernelTensors":
        """Return what a phase of a layer works on by the roles of operands, whose memory `tensor` has.

        Labels, loss and workspace are left to the caller.
        """
        roles: defaultdict[Role, dict[int, Operand]] = defaultdict(dict)
        for each in operands:
            roles[each.role][each.position] = each

        def every(role: Role) -> tuple[torch.Tensor, ...]:
            return tuple(tensor(each.memory) for each in roles[role].values())

        def first(role: Role) -> torch.Tensor | None:
            return next((tensor(each.memory) for each in roles[role].values()), None)

        gradients = roles[Role.INPUT_GRADIENT]
        positions = range(len(layer.inputs)) if phase.is_backward else ()
        return cls(
            inputs=every(Role.INPUT),
            output=first(Role.OUTPUT),
            input_gradients=tuple(tensor(gradients[at].memory) if at in gradients else None for at in positions),
            accumulates=tuple(at in gradients and gradients[at].access is Access.UPDATE for at in positions),
            output_gradient=first(Role.OUTPUT_GRADIENT),
            weights=first(Role.WEIGHTS),
            weight_gradient=first(Role.WEIGHT_GRADIENT),
            states=every(Role.STATE),
            statistics=first(Role.STATISTICS),
        )


@dataclass(frozen=True, slots=True)
class Kernel:
    """One way to compute one phase of one layer.

    Attributes:
        algorithm: its name; `vdnnsim.cost.table.ONLY` where there is no choice.
        family: what kind of algorithm it is, in the field's words (`explicit GEMM`, `Winograd`); empty where unknown.
        workspace_bytes: device memory that it needs while it runs; None where only a measurement tells.
        passed_bytes: how much of that the caller hands in as `KernelTensors.workspace`; the kernel takes the rest
            itself, from PyTorch's allocator, and gives it back before it ends.
    """

    algorithm: str
    family: str
    workspace_bytes: int | None
    passed_bytes: int
    run: Callable[[KernelTensors], None]


class KernelLibrary(Protocol):
    """The kernels of a device."""

    @property
    def channels_last(self) -> bool:
        """Whether the maps and filters that they are given lie in PyTorch's layout of that name."""

    def kernels(self, workload: Workload, layer: Layer, phase: Phase) -> tuple[Kernel, ...]:
        """Return every way to compute a phase of a layer, the framework's own first.

        Raises:
            ExecutionRefused: there is none; the message names the layer and the phase.
        """
