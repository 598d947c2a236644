"""What binds at a peak."""

import msgspec

from tests.captured_steps import checkpointed, simulator
from tests.trained_steps import MIB, linear
from vdnnsim.analysis.captured_peak import binding
from vdnnsim.analysis.memory import peak_by_kind
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.step import BufferKind
from vdnnsim.memory.choices import MemoryModel
from vdnnsim.plans.trace import IterationTrace
from vdnnsim.policies.pytorch import PyTorch


def traced(step: CapturedStep) -> IterationTrace:
    machine = simulator(step, MemoryModel.IDEAL)
    plan = PyTorch().plan(machine.setting())
    (trace,) = machine.replay((plan,), (machine.place_unlimited(plan),)).gpus
    return trace


def test_what_is_live_at_the_peak_of_an_update() -> None:
    """Weights, gradients and a root of 8 MiB, states of 16; the loss is of 4 B, the input of 1 KiB."""
    assert binding(traced(linear())) == (
        "update",
        (
            ("states of adamw", 16 * MIB),
            ("parameters", 8 * MIB),
            ("gradients of parameters", 8 * MIB),
            ("temporaries of aten._foreach_sqrt.default", 8 * MIB),
            ("inputs and constants", 1024),
            ("saved tensors and activations", 4),
        ),
    )


def test_what_is_live_at_the_peak_of_a_loss() -> None:
    """400 tokens: logarithms and their gradient of 100 MiB; the workspace of an operation is counted.

    Policies see the gradient, which one layer makes and reads, as a workspace: it is shown as the gradient that it is.
    """
    step = linear("adamw_fused", tokens=400)
    trace = traced(step)
    where, live = binding(trace)
    assert (where, live[0]) == ("backward", ("logits of the loss in float32 twice", 200 * MIB))
    kinds = dict(peak_by_kind(trace))
    assert kinds[BufferKind.GRADIENT_MAP] == 100 * MIB
    assert BufferKind.WORKSPACE not in kinds
    first = msgspec.structs.replace(step.operations[0], temporary_bytes=300 * MIB)
    trace = traced(msgspec.structs.replace(step, operations=(first, *step.operations[1:])))
    where, live = binding(trace)
    assert (where, live[:2]) == (
        "forward",
        (("workspaces", 300 * MIB), ("logits of the loss in float32", 100 * MIB)),
    )
    assert dict(peak_by_kind(trace))[BufferKind.WORKSPACE] == 300 * MIB


def test_logits_of_narrow_logarithms_are_found_too() -> None:
    """Under autocast PyTorch's cross entropy computes logarithms in 16 bits, of 50 MiB here, and copies them."""
    step = linear("adamw_fused", tokens=400)
    narrow = {"element_type": "bfloat16"}
    storages = [
        msgspec.structs.replace(each, nbytes=each.nbytes // 2, **narrow) if each.name == "_log_softmax" else each
        for each in step.storages
    ]
    tensors = [
        msgspec.structs.replace(each, **narrow) if step.storages[each.storage].name == "_log_softmax" else each
        for each in step.tensors
    ]
    _, live = binding(traced(msgspec.structs.replace(step, storages=tuple(storages), tensors=tuple(tensors))))
    assert live[0] == ("logits of the loss in bfloat16 and float32", 150 * MIB)


def test_what_is_recomputed_is_named() -> None:
    """Of a block's fc, 400 B, and its relu, 4 B, as they are computed again in backward."""
    step = checkpointed()
    storages = [
        msgspec.structs.replace(each, nbytes=400) if each.name == "fc again" else each for each in step.storages
    ]
    where, live = binding(traced(msgspec.structs.replace(step, storages=tuple(storages))))
    assert (where, live[0]) == ("backward", ("recomputed activations", 404))
