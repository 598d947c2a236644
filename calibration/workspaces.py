"""Workspaces without a GPU: asks cuDNN what it offers for every convolution, and writes the answers as a kernel table.

    python3 -m venv asking
    asking/bin/pip install nvidia-cudnn-cu13==9.19.* nvidia-cudnn-frontend==1.32.0 click msgspec pyyaml  # 1.2 GB
    asking/bin/python -m calibration.workspaces hw_profiles/h200.kernels.csv --tf32
    asking/bin/python -m calibration.workspaces hw_profiles/h200_without_tf32.kernels.csv --no-tf32
    asking/bin/python -m calibration.workspaces hw_profiles/a100_40gb.kernels.csv --gpu a100_40gb --tf32 --network ...

run by hand, from the top of the source tree; neither a GPU nor a driver nor PyTorch is needed. These are the tables of
the profiles of GPUs that nobody has measured (with which networks, stands in their provenance): workspaces to the byte,
seconds by a roofline until somebody measures them (`vdnnsim calibrate`), which `calibration.workspaces_rows` explains.
The profiles themselves are written by hand.

Asked by default: the ten networks of the vDNN paper at its batch sizes, and ResNet-50 at 64 and 256, float32, maps as
N, C, H, W. Which plans count, and what their families mean, stands in `calibration.kernels.cudnn_plans`.

What cuDNN does not tell without a GPU: times, and engines that need cublasLt or a compiler at run time and so might
show on the device only. Plans that it names but cannot build are printed.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click

from calibration.kernels.cudnn_graphs import PlanFinder, Target, described_device, frontend
from calibration.measure.subjects import distinct_subjects
from calibration.workspaces_gpus import GPUS, DescribedGpu
from calibration.workspaces_rows import KernelSettings, convolution_rows, other_row
from vdnnsim.cost.kernel_file import kernel_table_text
from vdnnsim.cost.kernel_table import KernelRow
from vdnnsim.dnn.convolutional import Convolution
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.element_type import ElementType
from vdnnsim.errors import InputError
from vdnnsim.replace import replace_file

PAPER_AND_RESNET: Final = (
    *("alexnet:128", "overfeat:128", "googlenet:128", "vgg16:64", "vgg16:128", "vgg16:256"),
    *("vgg116:32", "vgg216:32", "vgg316:32", "vgg416:32", "resnet50:64", "resnet50:256"),
)


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
    for subject in distinct_subjects(workloads):
        if not isinstance(subject.layer.operator, Convolution) or subject.phase is Phase.UPDATE:
            rows.append(other_row(gpu, subject, settings))
            continue
        problem = settings.problem(subject)
        offer = finder.find(problem)
        left_out.update(f"{subject.phase.value}: {name}" for name in offer.left_out)
        rows += convolution_rows(gpu, subject, problem, offer.plans, asked)
    return tuple(rows), frozenset(left_out)


@click.command()
@click.argument("table", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--gpu", type=click.Choice(list(GPUS)), default="h200", help="Which need not be there.")
@click.option("--network", "networks", multiple=True, default=PAPER_AND_RESNET, help="NETWORK:BATCH_SIZE, repeatable.")
@click.option(
    "--element-type",
    type=click.Choice([each.value for each in ElementType if each is not ElementType.TF32]),
    default="float32",
)
@click.option("--tf32/--no-tf32", default=False, help="Whether float32 may be multiplied as TF32.")
@click.option("--channels-last", is_flag=True, help="Maps as N, H, W, C.")
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
