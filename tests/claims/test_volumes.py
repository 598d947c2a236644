"""Convolutions and batch normalizations of volumes as others measured them on an A100 and a V100, in float16.

Source: https://github.com/xwang233/code-snippet, conv3d-channels-last/a100/readme.md at d78d454b and
conv3d-channels-last/v100/Tesla_V100-SXM2-16GB.md at 983497b3, cuDNN 8.0.5: one Conv3d with bias, forward and both
gradients, in both layouts; and batchnorm3d-channels-last/A100/A100-SXM4-40GB.md at a9840ad3, cuDNN 8.2. That channels
are padded to 32 and tiles have 64 rows or more was found on the rows of the A100; no number was fitted to any.
"""

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import pandas as pd
import pytest

from tests.machines import shipped_server
from vdnnsim.cost.convolution_shape import ConvolutionShape
from vdnnsim.cost.efficiency import EfficiencyCosts, efficient_gpu
from vdnnsim.cost.table import KernelWork
from vdnnsim.dnn.layers import Phase
from vdnnsim.units import ElementType

HALF = ElementType.FLOAT16
ROWS = pd.read_csv(Path(__file__).parent / "volumes.csv")
GRADIENTS = (Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS)
NORMALIZATION_MS = {
    (1, 32, 112): 0.917,
    (1, 64, 64): 0.197,
    (1, 64, 112): 0.984,
    (2, 32, 64): 0.352,
    (2, 64, 112): 1.962,
    (4, 64, 112): 3.905,
    (8, 64, 64): 1.456,
    (16, 64, 112): 15.654,
}
"""Forward, by images, channels and side of a cube; volumes lie as N, C, D, H, W."""


def errors(machine: str, rows: pd.DataFrame, phases: tuple[Phase, ...]) -> Iterator[float]:
    """Yield the relative error of each row in each layout, from 0.3 ms on: fewer are the host's."""
    gpu, name = efficient_gpu(shipped_server(machine)), "backward" if phases == GRADIENTS else "forward"
    for row in rows[rows.card == machine].itertuples():
        side, kernel, stride, padding = ((each,) * 3 for each in (row.side, row.kernel, row.stride, row.padding))
        filters, ones = row.filters, (1, 1, 1)
        shape = ConvolutionShape(row.images, row.channels, filters, side, kernel, stride, padding, dilation=ones)
        for last, measured_ms in ((False, f"{name}_ms"), (True, f"{name}_last_ms")):
            if (measured := getattr(row, measured_ms) / 1e3) >= 0.3e-3:
                yield sum(gpu.convolution_s(HALF, shape, each, channels_last=last) for each in phases) / measured - 1


@pytest.mark.parametrize(
    ("machine", "forward", "backward"), [("a100_40gb", 0.08, 0.16), ("v100", 0.21, 0.19)], ids=["a100_40gb", "v100"]
)
def test_volumes_under_windows_of_27_without_a_stride(machine: str, forward: float, backward: float) -> None:
    """Mean absolute errors.

    Float16 of this A100 is carried over from an RTX 3090; on the V100 all shapes are too fast alike, those of 128
    channels and more as much as others.
    """
    rows = ROWS[(ROWS.kernel == 3) & (ROWS.stride == 1)]
    assert fmean(map(abs, errors(machine, rows, (Phase.FORWARD,)))) < forward
    assert fmean(map(abs, errors(machine, rows, GRADIENTS))) < backward


@pytest.mark.parametrize("machine", ["a100_40gb", "v100"])
def test_gradients_of_strided_volumes_are_too_fast(machine: str) -> None:
    """By 19 to 80 %: cuDNN 8.0 takes 15 to 45 ps for each element of dX, whatever the number of filters."""
    found = list(errors(machine, ROWS[ROWS.stride == 2], GRADIENTS))
    assert min(found) > -0.8
    assert max(found) < -0.19


def test_batch_normalization_of_volumes_waits_for_its_loads() -> None:
    """Within 15 %: few channels keep few multiprocessors busy, and each thread waits for one load after the other."""
    costs = EfficiencyCosts(shipped_server("a100_40gb"), channels_last=False)
    for (images, channels, side), measured_ms in NORMALIZATION_MS.items():
        sizes = (images, channels, side, side, side)
        nbytes = 3 * 2 * images * channels * side**3
        work = KernelWork("aten.cudnn_batch_norm.default", HALF, {}, nbytes, sizes)
        assert costs.kernel(work).seconds * 1e3 == pytest.approx(measured_ms, rel=0.15)
