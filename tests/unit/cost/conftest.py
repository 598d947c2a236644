"""A machine with round numbers, for times that are worked out by hand."""

from dataclasses import asdict

import pytest

from vdnnsim.cost.machine import Machine
from vdnnsim.cost.parameters import CostParameters
from vdnnsim.hardware.server import Gpu, Host, Link, Server
from vdnnsim.units import ElementType


@pytest.fixture
def toy_parameters() -> CostParameters:
    """Every kernel takes one second more than its work; arithmetic runs at its peak, DRAM at half of it."""
    return CostParameters(
        kernel_overhead_s=1.0,
        stream_dram_fraction=0.5,
        product_flop_fraction=1.0,
        implicit_forward_flop_fraction=0.5,
        implicit_backward_flop_fraction=0.5,
        tile_load_flop=0.0,
        tile_start_depth=0.0,
        idle_tail_waves=0.0,
        scatter_depth=1.0,
        fft_dram_fraction=0.5,
    )


@pytest.fixture
def toy_machine(toy_parameters: CostParameters) -> Machine:
    """One multiprocessor, 4096 FLOP/s, 1024 B/s, elements of 4 bytes."""
    return Machine(toy_parameters, flop_per_s=4096.0, dram_bytes_per_s=1024.0, multiprocessors=1, element_bytes=4)


@pytest.fixture
def toy_server(toy_parameters: CostParameters) -> Server:
    """The toy machine as a server; it computes in float32 only."""
    return Server(
        name="toy",
        gpu=Gpu("toy", 1000, {ElementType.FLOAT32: 4096.0}, 1024.0, multiprocessors=1, granule_bytes=1),
        link=Link("toy link", h2d_bytes_per_s=10.0, d2h_bytes_per_s=5.0, latency_s=1.0),
        host=Host(memory_bytes=1000, issue_s=0.0, pin_latency_s=2.0, pin_bytes_per_s=4.0),
        cost_model=asdict(toy_parameters),
        figures=(),
    )
