"""Sectors that kernels touch, by the strides of their operands."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._ops import OpOverload

from calibration.capture.capture import capture
from calibration.capture.operand_copies import copied_operands
from calibration.capture.program import CaptureDevice
from calibration.capture.schemas import OperatorMode
from calibration.capture.sectors import sectors_of
from tests.calibration.capture.programs import program
from vdnnsim.dnn.kernel_work import NO_SECTORS, Sectors

HALF = torch.float16
CPU = CaptureDevice(compute_capability=None)


class LastSectors(OperatorMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = NO_SECTORS

    def dispatch(self, func: OpOverload, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        result = func(*args, **kwargs)
        if not func.is_view:
            self.found = sectors_of(func, args, kwargs, result, copied_operands(func, args, kwargs))
        return result


def last(run: Callable[[], Tensor]) -> Sectors:
    """Return the sectors of the last operator."""
    mode = LastSectors()
    with mode:
        run()
    return mode.found


def maps(*, channels_last: bool) -> Tensor:
    """Four maps of 64 channels of 32 x 32 halves, 262,144 elements."""
    order = torch.channels_last if channels_last else torch.contiguous_format
    return torch.zeros(4, 64, 32, 32, dtype=HALF).contiguous(memory_format=order)


@pytest.mark.parametrize("channels_last", [False, True])
def test_words_where_all_lie_alike(*, channels_last: bool) -> None:
    """Also where a sum goes along what lies together, and where one across it writes in the order in which it reads."""
    x = maps(channels_last=channels_last)
    for run in (lambda: x + x, x.relu_, lambda: x + 1, lambda: x.to(torch.float32), x.clone, x.sum):
        assert last(run) == NO_SECTORS
    assert last(lambda: x.sum(1 if channels_last else (2, 3))) == NO_SECTORS
    assert last(lambda: x.contiguous(memory_format=torch.contiguous_format).sum(0, keepdim=True)) == NO_SECTORS


def test_elements_that_lie_apart_take_a_sector_each() -> None:
    """Pixels are 128 B apart: each of 262,144 halves is read with 32 B, and others with the 2 B that they have.

    Its neighbours in a sector are channels, to which kernels come after the 1024 pixels of one: 32 KiB. In the order of
    channels 8 pixels are in a block, 16 in a sector: 4 B each, for the next come after 64 channels, 256 B.
    """
    first, turned = maps(channels_last=False), maps(channels_last=True)
    alone, window = Sectors(262_144 * 32, 32768), 32768
    assert last(lambda: first + turned) == last(lambda: first.add_(turned)) == Sectors(262_144 * 36, window)
    assert last(turned.contiguous) == Sectors(262_144 * 34, window)
    assert last(lambda: turned + first) == Sectors(262_144 * (2 + 2 + 4), 256)
    # A sum over images, or over halves of the channels, whose result lies as N, C, H, W.
    assert last(lambda: turned.sum(0)) == last(lambda: turned.view(4, 2, 32, 32, 32).sum(1)) == alone
    # A softmax copies its operand before.
    assert last(lambda: turned.softmax(-1)) == Sectors(262_144 * 34, window)


def test_single_elements_whose_sectors_are_shared_in_a_block() -> None:
    """Heads are turned around in rows of 128 B; 16 rows in columns of 32; a bias of 512 floats is read once."""
    heads, rows = torch.zeros(8, 1024, 12, 64, dtype=HALF), torch.zeros(16, 1024, dtype=HALF)
    assert last(heads.transpose(1, 2).contiguous) == Sectors(8 * 1024 * 12 * 64 * 4, 0)
    assert last(rows.t().contiguous) == Sectors(16 * 1024 * 4, 0)
    assert last(lambda: torch.zeros(64, 512) + torch.zeros(512)) == Sectors((2 * 64 * 512 + 512) * 4, 0)


def test_captured_sectors_are_those_of_a_gpu() -> None:
    """Of 16 channels a block reads 32 pixels, each 4 B of sectors that it shares; nothing is told of a CPU."""

    def inputs() -> Tensor:
        return torch.zeros(2, 16, 32, 32)

    for device, expected in ((CaptureDevice(), Sectors(2 * 16 * 32 * 32 * 8)), (CPU, NO_SECTORS)):
        step = capture(program(Turned, inputs, batch_size=2), device)
        (copy,) = [each for each in step.operations if each.name == "aten.clone.default"]
        assert copy.sectors == expected


class Turned(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(16))

    def forward(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 3, 1).contiguous() * self.scale
