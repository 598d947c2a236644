"""Rows of a kernel table that nobody timed: workspaces as cuDNN states them, seconds as peak rates allow at best.

A convolution gets a row for each family and each size of workspace, by allocations of 512 B, for plans that agree in
both cannot be told apart without timing them; the first in the order of cuDNN's heuristics stands for the others. A
plan takes

    max(FLOPs / peak, (X + Y + W + 2 workspace) / DRAM rate) + bias / DRAM rate

with the peak of tensor cores where the plan uses them: what lies in workspace is written once and read once, and the
bias is a pass over Y. FLOPs are those of the direct method. Any other kernel is max(FLOPs / peak, bytes / DRAM rate).
No kernel is faster than that and most are slower by a factor that differs, so the order of two plans may be another.
What PyTorch takes of its own beside other kernels (indices of maximum pooling, results that it copies) is not known
without a GPU, and is 0 here.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from calibration.kernels.cudnn_plans import (
    ConvolutionPlan,
    ConvolutionProblem,
    family_of,
    workspace_beside_result_bytes,
)
from calibration.measure.subjects import Subject
from calibration.workspaces_gpus import DescribedGpu
from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.cost.kernel_table import ADDED_TO, KernelRow
from vdnnsim.cost.table import ONLY
from vdnnsim.dnn.layers import LayerKind, Phase
from vdnnsim.element_type import ElementType
from vdnnsim.hardware.server import Origin

_ALLOCATION_BYTES = 512
"""Unit of PyTorch's allocator on CUDA."""
_DIGITS = 4
_PRODUCTS: Final = frozenset({LayerKind.FC, LayerKind.ATTENTION, LayerKind.RNN})
"""What is made of products of matrices, beside convolutions."""


@dataclass(frozen=True, slots=True)
class KernelSettings:
    """How kernels are to compute.

    Attributes:
        tf32: whether float32 is multiplied in TF32, which all products of matrices are then.
        channels_last: whether maps lie as N, H, W, C.
    """

    tf32: bool
    channels_last: bool

    def problem(self, subject: Subject) -> ConvolutionProblem:
        """Return what cuDNN is asked for a phase of a CONV layer."""
        workload = subject.workload
        shape = ConvolutionShape.of_layer(subject.layer, workload.batch_size)
        return ConvolutionProblem(shape, subject.phase, workload.element_type, self.channels_last, self.tf32)


def convolution_rows(
    gpu: DescribedGpu, subject: Subject, problem: ConvolutionProblem, plans: Iterable[ConvolutionPlan], asked: str
) -> list[KernelRow]:
    """Return the rows of one phase of a convolution.

    Args:
        gpu: whose rates bound the seconds.
        subject: the phase of a layer.
        problem: what cuDNN was asked of it.
        plans: what cuDNN answered.
        asked: who was asked, as `cuDNN 9.19.1`.
    """
    alike: dict[tuple[str, int], list[ConvolutionPlan]] = {}
    for plan in plans:
        allocations = -(-plan.workspace_bytes // _ALLOCATION_BYTES)
        alike.setdefault((family_of(plan, problem), allocations), []).append(plan)
    return [
        _convolution_row(gpu, subject, problem, same[0], family, _note(same, asked))
        for (family, _), same in alike.items()
    ]


def other_row(gpu: DescribedGpu, subject: Subject, settings: KernelSettings) -> KernelRow:
    """Return the row of a kernel that is no convolution."""
    flop, nbytes = _work(subject)
    element_type = subject.workload.element_type
    is_product = subject.layer.kind in _PRODUCTS and subject.phase is not Phase.UPDATE
    on_tensor_cores = is_product and (settings.tf32 or element_type is not ElementType.FLOAT32)
    seconds = max(flop / _peak(gpu, element_type, tensor_cores=on_tensor_cores), nbytes / gpu.dram_bytes_per_s)
    return _row(subject, ONLY, "", seconds, 0, "untimed; workspace not known")


def _convolution_row(
    gpu: DescribedGpu, subject: Subject, problem: ConvolutionProblem, plan: ConvolutionPlan, family: str, note: str
) -> KernelRow:
    flop, nbytes = _work(subject)
    workspace_bytes = plan.workspace_bytes
    if ADDED_TO in subject.shape.gradients:
        workspace_bytes = workspace_beside_result_bytes(plan, problem)
    seconds = max(
        flop / _peak(gpu, problem.element_type, tensor_cores=plan.uses_tensor_cores),
        (nbytes + 2 * workspace_bytes) / gpu.dram_bytes_per_s,
    )
    seconds += _bias_bytes(problem) / gpu.dram_bytes_per_s
    return _row(subject, plan.name, family, seconds, workspace_bytes, note)


def _row(subject: Subject, algorithm: str, family: str, seconds: float, workspace_bytes: int, note: str) -> KernelRow:
    flop, nbytes = _work(subject)
    return KernelRow(
        shape=subject.shape,
        algorithm=algorithm,
        family=family,
        seconds=float(f"{seconds:.{_DIGITS}g}"),
        spread=0.0,
        count=0,
        workspace_bytes=workspace_bytes,
        flop=flop,
        nbytes=nbytes,
        origin=Origin.DATASHEET,
        note=note,
    )


def _work(subject: Subject) -> tuple[int, int]:
    workload, layer, phase = subject.workload, subject.layer, subject.phase
    return workload.flop(layer, phase), workload.bytes_moved(layer, phase)


def _peak(gpu: DescribedGpu, element_type: ElementType, *, tensor_cores: bool) -> float:
    return (gpu.tensor_flop_per_s if tensor_cores else gpu.flop_per_s)[element_type]


def _bias_bytes(problem: ConvolutionProblem) -> int:
    """Forward reads and writes Y once more, the weight gradient reads dY."""
    passes = {Phase.FORWARD: 2, Phase.BACKWARD_WEIGHTS: 1}.get(problem.phase, 0)
    return passes * problem.shape.bias * problem.shape.y_elements * problem.element_type.nbytes


def _note(same: Sequence[ConvolutionPlan], asked: str) -> str:
    notes = (*sorted(same[0].numerical_notes), *same[0].behavior_notes)
    others = f", as {len(same) - 1} more" if len(same) > 1 else ""
    return "; ".join((*notes, f"untimed; {asked}{others}"))
