from collections.abc import Iterator

import pytest

from calibration.devices.cpu import CpuDevice


@pytest.fixture
def device() -> Iterator[CpuDevice]:
    device = CpuDevice()
    yield device
    device.close()
