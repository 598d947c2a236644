"""Peaks and collectives of one rank on a pretended GPU, in PyTorch's fake process group, held against its replay."""

import gc
import os
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor.debug import _clear_sharding_prop_cache

from calibration.capture.capture import capture
from calibration.capture.fake_tensors import replaced
from calibration.capture.parallel.world import rank_of
from calibration.capture.preparation import adapted, prepare
from calibration.capture.program import CaptureDevice, Program
from tests.calibration.capture import ranks
from tests.pretended_gpu import free_cache
from tests.toy import ROOT
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.collective import Collective
from vdnnsim.hardware.profile import find_profile, load_profile
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.trace import MemoryCount
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.scenario.simulator import Simulator
from vdnnsim.validation.row import predicted_peaks

ITERATIONS = 3
WIDTH, TOKENS, WORDS = 1024, 512, 16000


def clear() -> None:
    # Backward runs in a thread that keeps what DTensor caches of the process group before.
    one = torch.ones((), device="cuda", requires_grad=True)
    one.register_hook(lambda _: _clear_sharding_prop_cache())  # type: ignore[no-untyped-call]
    one.backward()  # type: ignore[no-untyped-call]
    del one
    gc.collect()
    free_cache()
    torch.cuda.reset_peak_memory_stats()


def captured(wanted: Program) -> CapturedStep:
    return capture(wanted, CaptureDevice(compute_capability=torch.cuda.get_device_capability()))


def predicted(step: CapturedStep) -> MemoryCount:
    server = load_profile(find_profile(os.environ["VDNNSIM_PRETEND_NAME"], ROOT)).server
    simulator = Simulator.of(CapturedWorkload.of(step), server, MemoryModel.PYTORCH, PinnedMemory.ARENA)
    (plan,) = simulator.completed((PyTorch().plan(simulator.setting()),))
    return predicted_peaks(plan, simulator.limits, caching_allocator=True, times=ITERATIONS)


def forget_shards(model: nn.Module) -> None:
    """Free the shards that FSDP holds beside the parameters, when these are on `meta` already.

    `reset_sharded_param` leaves them until the parameters have memory again, which would then lie between theirs.
    """
    for module in model.modules():
        if isinstance(module, FSDPModule):
            state: Any = module._get_fsdp_state()  # noqa: SLF001 - PyTorch has no public one
            # PyTorch 2.11 has at most one group.
            groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
            for group in filter(None, groups):
                for each in group.fsdp_params:
                    each._sharded_param_data = each._sharded_param_data.to("meta")  # noqa: SLF001


def counted(wanted: Program) -> tuple[int, int, list[Collective]]:
    """Allocated and reserved at most in a few iterations, weights having been allocated as shards at once.

    And the collectives of one more.

    Sharding on the GPU leaves blocks that the allocator does not split, as torchtitan avoids by the device `meta`.
    """
    assert wanted.layout is not None
    with rank_of(wanted.layout.ranks, rank=wanted.layout.rank):
        iteration = prepare(wanted, wanted.make_model(), "cuda", foreach=True)
        if not wanted.layout.is_replicated:
            # Else the optimizer would have the old ones.
            with replaced(torch.__future__, "_swap_module_params_on_conversion", value=wanted.has_pipeline):
                if not wanted.has_pipeline:
                    # They lie in what sharding has left, which a process that shards on `meta` has not.
                    iteration.batches = ()
                iteration.model.to("meta")
                forget_shards(iteration.model)
                gc.collect()
                torch.cuda.empty_cache()
                iteration.model.to_empty(device="cpu" if wanted.layout.offloads else "cuda")
                iteration = iteration if wanted.has_pipeline else adapted(iteration, wanted)
        torch.cuda.reset_peak_memory_stats()
        for _ in range(ITERATIONS):
            iteration.run(lambda _: None)
        peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
        with ranks.Collectives() as collectives:
            iteration.run(lambda _: None)
        return *peaks, collectives.found


def check(wanted: Program, within: float) -> None:
    """Hold what a rank allocates, reserves, within a part, and exchanges against its replay.

    What is reserved depends on the pools of each stream, and on segments of 2 MiB that a kernel's memory fills or not;
    with split layers also on one of 20 MiB.
    """
    assert wanted.layout is not None
    clear()
    allocated, reserved, collectives = counted(wanted)
    clear()

    step = captured(wanted)
    found = predicted(step)
    exchanges = (each.collective for each in step.operations if each.collective is not None)
    assert [each for each in exchanges if not each.is_of_host] == collectives
    assert found.allocated_bytes == pytest.approx(allocated, rel=0.005)
    splits = wanted.layout.tensor > 1
    assert found.reserved_bytes == pytest.approx(reserved, rel=within, abs=20 * 2**20 if splits else 0)
