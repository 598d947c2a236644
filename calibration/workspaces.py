"""Writes the kernel table of a GPU that is not there: cuDNN's plans of each convolution, timed by a roofline.

    python3 -m venv asking
    asking/bin/pip install nvidia-cudnn-cu13==9.19.* nvidia-cudnn-frontend==1.32.0 click msgspec pyyaml  # 1.2 GB
    asking/bin/python -m calibration.workspaces hw_profiles/h200.kernels.csv --tf32
    asking/bin/python -m calibration.workspaces hw_profiles/h200_without_tf32.kernels.csv --no-tf32
    asking/bin/python -m calibration.workspaces hw_profiles/a100_40gb.kernels.csv --gpu a100_40gb --tf32 --network ...

run by hand, from the top of the source tree, without GPU, driver or PyTorch. These are the tables of profiles of GPUs
that nobody has measured (of which networks, says their provenance): workspaces to the byte, seconds by a roofline
until somebody runs `vdnnsim calibrate`. By default the ten networks of the vDNN paper at its batch sizes, and ResNet-50
at 64 and 256, float32, maps as N, C, H, W. Which plans count, and their families: `calibration.kernels.cudnn_plans`.
Engines that need cublasLt or a compiler at run time may show on a device only; plans that cannot be built are printed.

A convolution gets a row for each family and each size of workspace, by allocations of 512 B; of plans that agree in
both the first in the order of cuDNN's heuristics stands for the others. A plan takes

    max(FLOPs / peak, (X + Y + W + 2 workspace) / DRAM rate) + bias / DRAM rate

with the peak of tensor cores where the plan uses them: workspace is written once and read once, and the bias is a pass
over Y. FLOPs are those of the direct method. Any other kernel is max(FLOPs / peak, bytes / DRAM rate). Most kernels are
slower by a factor that differs, so the order of two plans may be another. What PyTorch allocates beside other kernels
(indices of maximum pooling, results that it copies) is not known without a GPU, and is 0 here.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from calibration.kernels.cudnn_graphs import PlanFinder, Target, described_device, frontend
from calibration.kernels.cudnn_plans import (
    ConvolutionPlan,
    ConvolutionProblem,
    family_of,
    workspace_beside_result_bytes,
)
from calibration.kernels.described_gpus import GPUS, DescribedGpu
from calibration.measure.kernel_cases import GPU_NETWORKS, KernelCase, distinct_cases
from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.cost.kernel_table import ADDED_TO, KernelRow, kernel_table_text
from vdnnsim.cost.table import ONLY
from vdnnsim.dnn.convolutional import Convolution
from vdnnsim.dnn.layers import LayerKind, Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import InputError
from vdnnsim.files.atomic import replace_file
from vdnnsim.hardware.server import Origin
from vdnnsim.memory.requests import round_up
from vdnnsim.memory.settings import GRANULE_BYTES
from vdnnsim.units import ElementType

_DIGITS = 4
_PRODUCTS: Final = frozenset({LayerKind.FC, LayerKind.ATTENTION, LayerKind.RNN})
"""What is made of products of matrices, beside convolutions."""
PAPER_AND_RESNET: Final = (
    *(f"{network}:{batch_size}" for network, batch_sizes in GPU_NETWORKS.items() for batch_size in batch_sizes),
    "resnet50:256",
)


@dataclass(frozen=True, slots=True)
class KernelSettings:
    """How kernels are to compute.

    Attributes:
        tf32: whether float32 is multiplied in TF32, which all products of matrices are then.
    """

    tf32: bool
    channels_last: bool

    def problem(self, case: KernelCase) -> ConvolutionProblem:
        """Return what cuDNN is asked for a phase of a CONV layer."""
        workload = case.workload
        shape = ConvolutionShape.of_layer(case.layer, workload.batch_size)
        return ConvolutionProblem(shape, case.phase, workload.element_type, self.channels_last, self.tf32)


def convolution_rows(
    gpu: DescribedGpu, case: KernelCase, problem: ConvolutionProblem, plans: Iterable[ConvolutionPlan], asked: str
) -> list[KernelRow]:
    """Return the rows of a phase of a convolution by the plans that cuDNN answered (`asked`, as `cuDNN 9.19.1`)."""
    alike: dict[tuple[str, int], list[ConvolutionPlan]] = {}
    for plan in plans:
        allocated_bytes = round_up(plan.workspace_bytes, GRANULE_BYTES)
        alike.setdefault((family_of(plan, problem), allocated_bytes), []).append(plan)
    return [
        _convolution_row(gpu, case, problem, same[0], family, _note(same, asked)) for (family, _), same in alike.items()
    ]


def other_row(gpu: DescribedGpu, case: KernelCase, settings: KernelSettings) -> KernelRow:
    """Return the row of a kernel that is no convolution."""
    flop, nbytes = _work(case)
    element_type = case.workload.element_type
    is_product = case.layer.kind in _PRODUCTS and case.phase is not Phase.UPDATE
    on_tensor_cores = is_product and (settings.tf32 or element_type is not ElementType.FLOAT32)
    seconds = max(flop / _peak(gpu, element_type, tensor_cores=on_tensor_cores), nbytes / gpu.dram_bytes_per_s)
    return _row(case, ONLY, "", seconds, 0, "untimed; workspace not known")


def _convolution_row(
    gpu: DescribedGpu, case: KernelCase, problem: ConvolutionProblem, plan: ConvolutionPlan, family: str, note: str
) -> KernelRow:
    flop, nbytes = _work(case)
    passes = {Phase.FORWARD: 2, Phase.BACKWARD_WEIGHTS: 1}.get(problem.phase, 0)
    # Forward reads and writes Y once more, the weight gradient reads dY.
    bias_bytes = passes * problem.shape.bias * problem.shape.y_elements * problem.element_type.nbytes
    workspace_bytes = plan.workspace_bytes
    if ADDED_TO in case.shape.gradients:
        workspace_bytes = workspace_beside_result_bytes(plan, problem)
    seconds = max(
        flop / _peak(gpu, problem.element_type, tensor_cores=plan.uses_tensor_cores),
        (nbytes + 2 * workspace_bytes) / gpu.dram_bytes_per_s,
    )
    seconds += bias_bytes / gpu.dram_bytes_per_s
    return _row(case, plan.name, family, seconds, workspace_bytes, note)


def _row(case: KernelCase, algorithm: str, family: str, seconds: float, workspace_bytes: int, note: str) -> KernelRow:
    flop, nbytes = _work(case)
    return KernelRow(
        shape=case.shape,
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


def _work(case: KernelCase) -> tuple[int, int]:
    workload, layer, phase = case.workload, case.layer, case.phase
    return workload.flop(layer, phase), workload.bytes_moved(layer, phase)


def _peak(gpu: DescribedGpu, element_type: ElementType, *, tensor_cores: bool) -> float:
    return (gpu.tensor_flop_per_s if tensor_cores else gpu.flop_per_s)[element_type]


def _note(same: Sequence[ConvolutionPlan], asked: str) -> str:
    notes = (*sorted(same[0].numerical_notes), *same[0].behavior_notes)
    others = f", as {len(same) - 1} more" if len(same) > 1 else ""
    return "; ".join((*notes, f"untimed; {asked}{others}"))


def asked_workloads(texts: Iterable[str], element_type: ElementType) -> tuple[Workload, ...]:
    """Return the workloads that are written as NETWORK:BATCH_SIZE.

    Raises:
        InputError: no network has such a name, or a batch size is none.
    """
    workloads = []
    for text in texts:
        name, _, size = text.partition(":")
        if not (size.isascii() and size.isdigit() and int(size)):
            raise InputError(f"found {text!r}, expected NETWORK:BATCH_SIZE, as vgg16:64")
        workloads.append(Workload(build_network(name), int(size), element_type))
    return tuple(workloads)


def generate(
    gpu: DescribedGpu, workloads: Iterable[Workload], settings: KernelSettings
) -> tuple[tuple[KernelRow, ...], frozenset[str]]:
    """Return the rows of all kernels of these workloads on a GPU, and the names of plans that could not be built.

    Raises:
        DeviceError: cuDNN cannot be asked.
    """
    finder = PlanFinder(Target(properties=described_device(gpu.properties)))
    asked = f"cuDNN {frontend().backend_version_string()}"
    rows: list[KernelRow] = []
    left_out: set[str] = set()
    for case in distinct_cases(workloads):
        if not isinstance(case.layer.operator, Convolution) or case.phase is Phase.UPDATE:
            rows.append(other_row(gpu, case, settings))
            continue
        problem = settings.problem(case)
        offer = finder.find(problem)
        left_out.update(f"{case.phase.value}: {name}" for name in offer.left_out)
        rows += convolution_rows(gpu, case, problem, offer.plans, asked)
    return tuple(rows), frozenset(left_out)


@click.command()
@click.argument("table", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--gpu", type=click.Choice(list(GPUS)), default="h200", help="A GPU, which need not be there.")
@click.option(
    "--network", "networks", multiple=True, default=PAPER_AND_RESNET, help="NETWORK:BATCH_SIZE; may be repeated."
)
@click.option(
    "--element-type",
    type=click.Choice([each.value for each in ElementType if each is not ElementType.TF32]),
    default="float32",
)
@click.option("--tf32/--no-tf32", default=False, help="Compute float32 products in TF32.")
@click.option("--channels-last", is_flag=True, help="Lay maps as N, H, W, C.")
def main(
    table: Path, gpu: str, networks: tuple[str, ...], element_type: str, *, tf32: bool, channels_last: bool
) -> None:
    """Write the kernel table TABLE of a GPU that need not be there."""
    try:
        workloads = asked_workloads(networks, ElementType(element_type))
        rows, left_out = generate(GPUS[gpu], workloads, KernelSettings(tf32, channels_last))
        replace_file(table, kernel_table_text(rows).encode())
    except InputError as failure:
        sys.stderr.write(f"{failure}\n")
        sys.exit(1)
    sys.stderr.write(f"{len(rows)} rows; not built: {', '.join(sorted(left_out)) or 'none'}\n")


if __name__ == "__main__":
    main()
