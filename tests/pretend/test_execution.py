"""Memory of the executor on GPU and host, counted by PyTorch's allocators on a pretended GPU."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import reduce

import pytest
import torch

from calibration.devices.cuda import CudaDevice
from calibration.executor.dry_run import DryRunLibrary
from calibration.executor.executor import Execution, Executor
from calibration.executor.pinned_arena import PinnedArena
from calibration.kernels.convolution import EXPLICIT_GEMM
from calibration.kernels.pytorch import PyTorchLibrary
from tests.calibration.executor.bench import (
    UNLIMITED,
    Bench,
    Seconds,
    every_policy,
    every_second_explicit,
    framework_first,
)
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.layers import Layer, Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.networks.tiny import tiny_forked, tiny_residual
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.placement import needed_bytes
from vdnnsim.plans.trace import MemoryCount
from vdnnsim.units import MIB
from vdnnsim.validation.row import predicted_peaks

pytestmark = pytest.mark.pretend


def test_an_arena_that_grew_holds_its_last_size_alone(device: CudaDevice) -> None:
    """2100 MiB after 100, 300, 700 and 1100; PyTorch's pinned memory would hold 128 + 512 + 1024 + 2048 + 4096 MiB."""
    pytorch_before = torch.cuda.host_memory_stats()["allocated_bytes.current"]
    arena = PinnedArena(device)
    for nbytes in (100 * MIB, 300 * MIB, 700 * MIB, 1100 * MIB, 2100 * MIB):
        arena.reserve(nbytes)
    whole = arena.slice(0, 2100 * MIB)
    assert whole.is_pinned()
    assert whole.untyped_storage().nbytes() == 2100 * MIB
    assert torch.cuda.host_memory_stats()["allocated_bytes.current"] == pytorch_before


def test_a_closed_device_leaves_no_memory_to_the_next() -> None:
    """Each takes a workspace for cuBLAS on a stream of its own, 32 MiB on Hopper; three would hold 96 MiB."""
    before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    for _ in range(3):
        CudaDevice(0).close()
        assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == before


@pytest.mark.parametrize("seconds", [framework_first, every_second_explicit])
@pytest.mark.parametrize("network", [tiny_forked, tiny_residual])
def test_plans_ask_for_what_they_count(device: CudaDevice, network: Callable[[], LayerGraph], seconds: Seconds) -> None:
    """To the byte, kernels of PyTorch that state no workspace among them."""
    bench = Bench.of(device, PyTorchLibrary("cuda"))
    workload = Workload(network(), 12)
    for policy in every_policy():
        plan = bench.plan(workload, policy, seconds)
        assert bench.execute(workload, plan).peaks.requested_bytes == needed_bytes(plan), policy.label


@pytest.mark.parametrize("channels_last", [False, True])
def test_the_sum_over_a_map_is_counted_with_the_kernel_that_sums(device: CudaDevice, *, channels_last: bool) -> None:
    """The gradient of a bias: partial sums of several blocks lie in a buffer, most of them where channels lie last."""
    net = GraphBuilder("one", MapShape(16, 56, 56))
    y = net.conv("conv", 0, 64, 3, padding=1, relu=False)
    workload = Workload(net.build(net.fc("fc", y, 5, relu=False)), 64)
    layer, phase = workload.graph.layers[0], Phase.BACKWARD_WEIGHTS
    library = DryRunLibrary(device, PyTorchLibrary("cuda", channels_last=channels_last))
    explicit = next(each for each in library.kernels(workload, layer, phase) if each.algorithm == EXPLICIT_GEMM)
    gradient = torch.empty((64, 64, 56, 56), device="cuda")
    gradient = gradient.to(memory_format=torch.channels_last) if channels_last else gradient
    bias_gradient = torch.empty(64, device="cuda")
    device.begin()
    torch.sum(gradient, (0, 2, 3), out=bias_gradient)
    assert explicit.workspace_bytes == explicit.passed_bytes + device.peaks().requested_bytes
    assert device.peaks().requested_bytes > 0


def test_reserved_bytes_of_several_iterations_are_predicted(device: CudaDevice) -> None:
    """By the requests of as many executions, between which weights stay; AlexNet (16) by explicit GEMM.

    Its kernels are handed what they take, so that the allocator is asked by the plan alone. To the byte of what is
    allocated and reserved at most, under every policy, of which some need more for a second iteration than for one.
    """
    bench = Bench.of(device, PyTorchLibrary("cuda"))
    workload = Workload(build_network("alexnet"), 16)
    limits = replace(UNLIMITED, granule_bytes=device.granule_bytes)
    grown = []
    # One rule for algorithms each, for with made-up times all choose alike.
    policies = {policy.name: policy for policy in reversed(every_policy())}
    for policy in policies.values():
        plan = bench.plan(workload, policy, last_first)
        with closing(Executor(device, workload, bench.library, keeps_results=False)) as executor:
            runs = [executor.execute(plan, UNLIMITED) for _ in range(4)]
        counted = reduce(MemoryCount.largest, (run.peaks for run in runs if isinstance(run, Execution)))
        once, predicted = (predicted_peaks(plan, limits, caching_allocator=True, times=times) for times in (1, 4))
        assert counted == predicted, policy.label
        if once != predicted:
            grown.append(policy.label)
    assert grown


def last_first(_layer: Layer, _phase: Phase, place: int) -> float:
    """The last algorithm is the fastest."""
    return 1.0 / (1 + place)
