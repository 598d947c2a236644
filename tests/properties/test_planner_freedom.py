"""`optimal` on random small transformers: between its bound and other policies, and no slower with more freedom."""

from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from tests.machines import shipped_server
from vdnnsim import capture
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.graph import GraphBuilder
from vdnnsim.dnn.sequences import Attention, Embedding, LayerNormalization, Linear, SmoothActivation, Smoothness
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.workload import Optimizer, Workload
from vdnnsim.errors import PlanError, PolicyError
from vdnnsim.memory.choices import MemoryChoice, MemoryModel, PinnedMemory, preallocated
from vdnnsim.planning.explanations import floor_bytes
from vdnnsim.planning.planner import Planner
from vdnnsim.planning.problem import problem_of
from vdnnsim.plans.buffers import states_of_update
from vdnnsim.plans.schedule import iteration
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.alternatives import ALTERNATIVES
from vdnnsim.policies.interface import DecidedBy, Policy, make_plan
from vdnnsim.policies.optimal import GOOD, Optimal
from vdnnsim.scenario.simulator import Simulator
from vdnnsim.units import MIB

SERVER = shipped_server("rtx_4090")

VOCABULARY = 8000
OTHERS = [each() for each in ALTERNATIVES if each().decided_by is not DecidedBy.TRIALS]
"""Policies that plan without trials, which take seconds."""


@st.composite
def transformers(draw: st.DrawFn) -> Workload:
    """A few blocks of attention and a product, with normalizations before or behind, on some tokens."""
    width, heads = draw(st.sampled_from((512, 1024))), 8
    net = GraphBuilder("transformer", MapShape(1, steps=draw(st.sampled_from((256, 1024)))))
    x = net.layer("embedding", Embedding(draw(st.sampled_from((1000, 30000))), width), 0)
    is_before, wide = draw(st.booleans()), draw(st.sampled_from((2, 4)))
    for number in range(draw(st.integers(1, 2))):

        def normalized(name: str, y: int) -> int:
            return net.layer(name, LayerNormalization(), y)

        y = normalized(f"norm1_{number}", x) if is_before else x
        y = net.layer(f"attention{number}", Attention(heads, heads), net.layer(f"qkv{number}", Linear(3 * width), y))
        x = net.add(f"add1_{number}", net.layer(f"out{number}", Linear(width), y), x, relu=False)
        y = normalized(f"norm2_{number}", x)
        x = x if is_before else y
        y = net.layer(f"up{number}", Linear(wide * width), y)
        y = net.layer(f"gelu{number}", SmoothActivation(Smoothness.GELU), y)
        x = net.add(f"add2_{number}", net.layer(f"down{number}", Linear(width), y), x, relu=False)
    net.begin_classifier()
    graph = net.build(net.layer("head", Linear(1000), x))
    return Workload(graph, draw(st.sampled_from((8, 64))), optimizer=Optimizer.ADAM)


def limited(workload: Workload, share: float, model: MemoryChoice = MemoryModel.IDEAL) -> Simulator:
    """A machine between what some kernel needs in any schedule and what the whole needs."""
    machine = Simulator.of(workload, SERVER, model, PinnedMemory.ARENA)
    granule = machine.limits.granule_bytes
    kernels = problem_of(iteration(workload), workload, machine.costs, 0, granule).kernels
    least = max(map(floor_bytes, kernels))
    most = max(each.held_bytes + each.waiting_bytes + each.options[0].workspace_bytes for each in kernels)
    return replace(machine, limits=replace(machine.limits, device_bytes=int(least + share * (most - least))))


def planned(policy: Policy, machine: Simulator) -> tuple[TrainingPlan, float]:
    """A plan and the seconds that it takes; infinite where it does not fit."""
    plan = make_plan(policy, machine.setting())
    trial = machine.run_trial(plan)
    return plan, trial.cost_s if trial.fits else float("inf")


MODELS = {"bytes": MemoryModel.IDEAL, "pytorch": MemoryModel.PYTORCH, "ahead": preallocated(MemoryModel.PYTORCH)}
"""Memory counts bytes, or blocks have addresses, in PyTorch's segments or in memory that is reserved ahead."""


@pytest.mark.parametrize("model", ["bytes", pytest.param("pytorch", marks=pytest.mark.thorough), "ahead"])
@settings(max_examples=2)
@given(workload=transformers(), share=st.sampled_from((0.1, 0.4, 0.7)))
def test_optimal_is_between_its_bound_and_other_policies(model: str, workload: Workload, share: float) -> None:
    """Within a percent of the bound the others are not asked, so that it may be that much slower."""
    machine = limited(workload, share, MODELS[model])
    plan, seconds = planned(Optimal(), machine)
    assert plan.certificate is not None
    assert plan.certificate.complete
    bound_s = plan.certificate.bound_s
    assert bound_s <= seconds * (1 + 1e-9)
    assert planned(Optimal(), machine)[1] == seconds, "the same question"

    less = [planned(Optimal(recompute=False), machine)[1]]
    for policy in OTHERS:
        with suppress(PolicyError, PlanError):
            other, other_s = planned(policy, machine)
            less += [other_s] if other.workload == workload else []
    assert seconds <= max(min(less), bound_s * (1 + GOOD)) * (1 + 1e-9)


class CapturedTransformer(nn.Module):
    """Some blocks of PyTorch's own between an embedding and a head, with its loss."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        blocks_of = (nn.TransformerEncoderLayer(width, 4, 2 * width, 0.0, batch_first=True) for _ in range(blocks))
        self.blocks = nn.Sequential(*blocks_of)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        scores = self.head(self.blocks(self.embedding(tokens)))
        return functional.cross_entropy(scores.flatten(0, 1), tokens.flatten())


@st.composite
def captured_transformers(draw: st.DrawFn) -> CapturedWorkload:
    """A transformer that is updated at the end, of three micro-batches too, or parameter by parameter in backward."""
    model = CapturedTransformer(draw(st.sampled_from((256, 512))), draw(st.integers(1, 2)))
    tokens = torch.zeros(16, 256, dtype=torch.int64)
    optimizer, in_backward = draw(st.sampled_from(("sgd", "adamw_fused"))), draw(st.booleans())
    step = capture(model, tokens, loss=lambda loss: loss, optimizer=optimizer, in_backward=in_backward)
    return CapturedWorkload.of(step, 1 if in_backward else draw(st.sampled_from((1, 3))))


@pytest.mark.thorough
@settings(max_examples=3)
@given(workload=captured_transformers(), share=st.sampled_from((0.05, 0.1, 0.3, 0.4)))
def test_more_memory_makes_no_plan_of_whole_buffers_slower(workload: CapturedWorkload, share: float) -> None:
    """By more than 6 %, though buffers of 131 MB may be moved for a few bytes; up to 5 % was seen."""
    times = [planned(Optimal(chunk="whole"), limited(workload, each))[1] for each in (share, share + 0.1, share + 0.2)]
    assert max(times[1:]) <= times[0] * 1.06


@pytest.mark.thorough
@settings(max_examples=3)
@given(workload=captured_transformers(), share=st.sampled_from((0.4, 0.7)))
def test_no_freedom_makes_a_plan_slower_where_blocks_have_addresses(workload: CapturedWorkload, share: float) -> None:
    """To recompute, to offload, and to keep states on the host, also where updates are in backward."""
    machine = limited(workload, share, MODELS["ahead"])
    limits = replace(machine.limits, host_bytes=0, pinned_bytes=0, process_bytes=0)
    plan, seconds = planned(Optimal(), machine)
    assert plan.certificate is not None
    good_s = plan.certificate.bound_s * (1 + GOOD)
    less = (planned(Optimal(recompute=False), machine)[1], planned(Optimal(), replace(machine, limits=limits))[1])
    assert seconds <= max(min(less), good_s) * (1 + 1e-9)
    if states_of_update(workload.step):
        assert planned(Optimal(offload_optimizer=True), machine)[1] <= max(seconds, good_s) * (1 + 1e-9)


@pytest.mark.thorough
@settings(max_examples=4)
@given(workload=captured_transformers(), mib=st.sampled_from((1, 4, 10, 18)))
def test_no_plan_is_refused_that_a_search_would_find(workload: CapturedWorkload, mib: int) -> None:
    """A little above the least bytes of any plan, where segments need more than what lies in them."""
    machine = limited(workload, 0.0, MODELS["ahead"])
    machine = replace(machine, limits=replace(machine.limits, device_bytes=machine.limits.device_bytes + mib * MIB))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Planner, "refused", lambda *_: None)
        found_s = planned(Optimal(time_limit="6 s"), machine)[1]
    assert planned(Optimal(time_limit="6 s"), machine)[1] <= found_s


@pytest.mark.thorough
@settings(max_examples=2)
@given(workload=transformers(), share=st.sampled_from((0.1, 0.4, 0.7)))
def test_states_that_may_be_on_the_host_make_no_plan_slower(workload: Workload, share: float) -> None:
    machine = limited(workload, share)
    (_, less_s), (_, more_s) = (planned(Optimal(offload_optimizer=each), machine) for each in (False, True))
    assert more_s <= less_s * (1 + GOOD)
