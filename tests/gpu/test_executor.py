"""The executor on a GPU: what the CPU cannot show of it."""

import gc

import pytest
import torch

from calibration.devices.arithmetic import arithmetic
from calibration.devices.cuda import CudaDevice
from calibration.kernels.interface import KernelLibrary
from tests.calibration.executor.bench import UNLIMITED, Bench
from vdnnsim.dnn.networks.vgg import vgg_paper
from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.operations import Stream
from vdnnsim.plans.placement import DoesNotFit
from vdnnsim.policies.base import Base
from vdnnsim.policies.vdnn import VdnnAll

pytestmark = [pytest.mark.gpu, pytest.mark.pretend]


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
    # What another test left in cycles.
    gc.collect()
    small = CudaDevice(0, memory_limit_bytes=2**30)
    bench = Bench.of(small, library)
    plan = bench.plan(workload, Base())

    with arithmetic(tf32=False):
        answer = bench.attempt(workload, plan, UNLIMITED)

    small.close()
    assert isinstance(answer, DoesNotFit)
    assert answer.capacity_bytes == 2**30
    assert torch.cuda.memory_allocated() < 2**26
