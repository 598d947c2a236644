"""The executor on a GPU: the tests of the CPU on a CUDA device, with cuDNN's plans where its package is installed."""

from collections.abc import Iterator

import pytest
import torch

from calibration.devices.arithmetic import arithmetic
from calibration.devices.cuda import CudaDevice
from calibration.kernels.cudnn_library import library_for
from calibration.kernels.port import KernelLibrary
from tests.calibration.executor.bench import UNLIMITED, Bench
from tests.calibration.executor.test_poisoned_memory import (
    test_an_operation_left_out_changes_the_gradients,
    test_nothing_is_read_before_it_is_there_or_after_it_is_gone,
)
from tests.calibration.executor.test_results import (
    test_a_copy_that_is_kept_serves_two_prefetches,
    test_a_dynamic_policy_in_little_memory,
    test_a_gradient_that_goes_in_the_middle_is_kept,
    test_a_plan_runs_again_and_again,
    test_an_inference_has_a_loss_and_no_gradients,
    test_every_policy_computes_what_plain_pytorch_does,
    test_maps_whose_channels_lie_last,
    test_mixed_algorithms_compute_what_the_reference_does,
    test_narrow_elements,
    test_weights_after_an_update,
)
from vdnnsim.dnn.networks.vgg import vgg_paper
from vdnnsim.dnn.workload import Workload
from vdnnsim.plan.operations import Stream
from vdnnsim.plan.placement import DoesNotFit
from vdnnsim.policies.base import Base
from vdnnsim.policies.vdnn import VdnnAll

__all__ = [
    "test_a_copy_that_is_kept_serves_two_prefetches",
    "test_a_dynamic_policy_in_little_memory",
    "test_a_gradient_that_goes_in_the_middle_is_kept",
    "test_a_plan_runs_again_and_again",
    "test_an_inference_has_a_loss_and_no_gradients",
    "test_an_operation_left_out_changes_the_gradients",
    "test_every_policy_computes_what_plain_pytorch_does",
    "test_maps_whose_channels_lie_last",
    "test_mixed_algorithms_compute_what_the_reference_does",
    "test_narrow_elements",
    "test_nothing_is_read_before_it_is_there_or_after_it_is_gone",
    "test_weights_after_an_update",
]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.fixture
def device() -> Iterator[CudaDevice]:
    gpu = CudaDevice(0)
    with arithmetic(tf32=False):
        yield gpu
    gpu.close()


@pytest.fixture(scope="module")
def library() -> KernelLibrary:
    """One for all, for it looks for cuDNN's plans of each shape once."""
    return library_for(torch.device("cuda", 0), channels_last=False, tf32=False)


@pytest.fixture
def bench(device: CudaDevice, library: KernelLibrary) -> Bench:
    return Bench.of(device, library)


def test_copies_overlap_with_kernels(bench: Bench) -> None:
    """VGG-16 (32) under vdnn_all: some copy runs while a kernel does, which pageable memory or one stream prevents."""
    workload = Workload(vgg_paper(16), batch_size=32)
    plan = bench.plan(workload, VdnnAll())
    bench.execute(workload, plan)

    trace = bench.execute(workload, plan).trace

    overlap_s = sum(
        max(0.0, min(copy.end_s, kernel.end_s) - max(copy.start_s, kernel.start_s))
        for copy in trace.spans_on(Stream.MEMORY)
        for kernel in trace.spans_on(Stream.COMPUTE)
    )
    copies_s = sum(copy.end_s - copy.start_s for copy in trace.spans_on(Stream.MEMORY))
    assert overlap_s > copies_s / 10


def test_a_gpu_that_runs_out_in_the_middle_is_a_result(library: KernelLibrary) -> None:
    """VGG-16 (32) under base keeps maps of more than 1.5 GiB, and PyTorch may reserve 1 GiB."""
    workload = Workload(vgg_paper(16), batch_size=32)
    small = CudaDevice(0, memory_limit_bytes=2**30)
    bench = Bench.of(small, library)
    plan = bench.plan(workload, Base())

    with arithmetic(tf32=False):
        answer = bench.attempt(workload, plan, UNLIMITED)

    small.close()
    assert isinstance(answer, DoesNotFit)
    assert answer.capacity_bytes == 2**30
    assert torch.cuda.memory_allocated() < 2**26
