"""Protocol of kernels: an algorithm for a phase of a layer, its workspace, and the tensors that it works on."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import torch

from calibration.kernels.tensors import Part, carve, dtype_of, weight_views
from vdnnsim.cost.table import ONLY
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.step import Access, Operand, Role
from vdnnsim.dnn.workload import Workload


@dataclass(frozen=True, slots=True)
class KernelTensors:
    """The operands of a kernel, in memory of the caller; those that a phase does not use are None or empty.

    Attributes:
        inputs: the feature maps X, each (N, C, H, W) in the element type of the workload.
        output: the feature map Y; the very tensor of X where the layer works in place. Of the loss, log-probabilities.
        input_gradients: for each input its dX, None where it needs no gradient.
        output_gradient: dY; the very tensor of dX where the layer works in place.
        weights, weight_gradient: W and dW, flat, of as many elements as the layer has parameters; the bias at the end.
        statistics: mean and inverse deviation of a batch normalization, flat, 2 C elements of float32.
        labels: the class of each image, (N,) of int64.
        loss: one element of float32.
        workspace: allocated by the caller, flat bytes; None if the kernel needs none.
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


@dataclass(frozen=True, slots=True)
class KernelOperands:
    """The memories of a kernel's operands by their roles, each by its number; see `KernelTensors`."""

    inputs: tuple[int, ...]
    output: int | None
    input_gradients: tuple[int | None, ...]
    accumulates: tuple[bool, ...]
    output_gradient: int | None
    weights: int | None
    weight_gradient: int | None
    states: tuple[int, ...]
    statistics: int | None

    @classmethod
    def of(cls, layer: Layer, phase: Phase, operands: Iterable[Operand]) -> "KernelOperands":
        roles: defaultdict[Role, dict[int, Operand]] = defaultdict(dict)
        for each in operands:
            roles[each.role][each.position] = each

        def every(role: Role) -> tuple[int, ...]:
            return tuple(each.memory for each in roles[role].values())

        def first(role: Role) -> int | None:
            return next(iter(every(role)), None)

        gradients = roles[Role.INPUT_GRADIENT]
        positions = range(len(layer.inputs)) if phase.is_backward else ()
        return cls(
            inputs=every(Role.INPUT),
            output=first(Role.OUTPUT),
            input_gradients=tuple(gradients[at].memory if at in gradients else None for at in positions),
            accumulates=tuple(at in gradients and gradients[at].access is Access.UPDATE for at in positions),
            output_gradient=first(Role.OUTPUT_GRADIENT),
            weights=first(Role.WEIGHTS),
            weight_gradient=first(Role.WEIGHT_GRADIENT),
            states=every(Role.STATE),
            statistics=first(Role.STATISTICS),
        )

    def tensors(
        self,
        tensor: Callable[[int], torch.Tensor],
        labels: torch.Tensor | None = None,
        loss: torch.Tensor | None = None,
        workspace: torch.Tensor | None = None,
    ) -> KernelTensors:
        """Return the tensors that lie in these memories; `tensor` returns that of one."""

        def maybe(memory: int | None) -> torch.Tensor | None:
            return None if memory is None else tensor(memory)

        return KernelTensors(
            inputs=tuple(map(tensor, self.inputs)),
            output=maybe(self.output),
            input_gradients=tuple(map(maybe, self.input_gradients)),
            accumulates=self.accumulates,
            output_gradient=maybe(self.output_gradient),
            weights=maybe(self.weights),
            weight_gradient=maybe(self.weight_gradient),
            states=tuple(map(tensor, self.states)),
            statistics=maybe(self.statistics),
            labels=labels,
            loss=loss,
            workspace=workspace,
        )


@dataclass(frozen=True, slots=True)
class Kernel:
    """One way to compute one phase of one layer.

    Attributes:
        algorithm: its name; `vdnnsim.cost.table.ONLY` where there is no choice.
        family: of the algorithm (`explicit GEMM`, `Winograd`); empty where unknown.
        workspace_bytes: device memory that it needs while it runs; None where that has to be measured.
        passed_bytes: the part that the caller passes as `KernelTensors.workspace`; the kernel allocates the rest from
            PyTorch's allocator, and frees it before it ends.
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
        """Whether maps and filters lie in PyTorch's layout of that name."""

    def kernels(self, workload: Workload, layer: Layer, phase: Phase) -> tuple[Kernel, ...]:
        """Return every way to compute a phase of a layer, PyTorch's own first.

        Raises:
            ExecutionRefused: there is none; the message names the layer and the phase.
        """


Run = Callable[[KernelTensors, list[torch.Tensor]], None]
"""A computation on the caller's tensors and the parts of the workspace."""


@dataclass(frozen=True, slots=True)
class Site:
    """A layer of a workload and the layout of its tensors."""

    workload: Workload
    layer: Layer
    channels_last: bool
    device_type: str

    @property
    def dtype(self) -> torch.dtype:
        return dtype_of(self.workload.element_type)

    def map_part(self, shape: MapShape, dtype: torch.dtype | None = None) -> Part:
        """Return a part for a map of the whole batch, by default of the type of the maps."""
        whole = (self.workload.batch_size, shape.channels, shape.height, shape.width)
        return Part(whole, dtype or self.dtype, self.channels_last)

    def added_to(self, position: int) -> bool:
        """Whether the dX of an input is added to a gradient."""
        index = self.layer.inputs[position]
        needed = self.workload.graph.maps[index].needs_gradient
        return needed and self.workload.accumulates(self.layer, index)

    def weights(self, flat: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return W and bias in the flat weights, or their gradients in the flat gradient."""
        assert flat is not None, f"{self.layer.name} has weights"
        return weight_views(self.layer, flat, channels_last=self.channels_last)

    def only(self, run: Run, parts: tuple[Part, ...] = (), *, allocates: bool = False) -> tuple[Kernel, ...]:
        return (self.kernel(ONLY, "", run, parts, allocates=allocates),)

    def kernel(
        self, algorithm: str, family: str, run: Run, parts: tuple[Part, ...] = (), *, allocates: bool = False
    ) -> Kernel:
        """Return a kernel over parts of a workspace; how much it `allocates` beside has to be measured."""
        passed = sum(part.nbytes for part in parts)

        def run_in_workspace(tensors: KernelTensors) -> None:
            run(tensors, carve(tensors.workspace, parts))

        return Kernel(algorithm, family, None if allocates else passed, passed, run_in_workspace)


def given(tensor: torch.Tensor | None) -> torch.Tensor:
    """Return an operand of the phase, which the caller has set."""
    assert tensor is not None, "the caller gives every tensor that a phase touches"
    return tensor


def deposit(result: torch.Tensor, gradient: torch.Tensor, *, added: bool) -> None:
    """Write a result into a gradient, or add it, as autograd accumulates."""
    if added:
        gradient.add_(result)
    else:
        gradient.copy_(result)
