"""Loops that need less memory."""

import msgspec
import pytest

from tests.captured_steps import chain
from tests.trained_steps import MIB, blocks, linear
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.step import BufferKind, Module
from vdnnsim.dnn.training_loops import (
    Loop,
    checkpointed_classes,
    class_of_blocks,
    fits_but_for_update,
    kept_bytes,
    lighter_loops,
    logits_bytes,
    slices_of,
    temporary_bytes,
)
from vdnnsim.dnn.workload import Mode
from vdnnsim.units import Precision


def mixed(step: CapturedStep, **changes: object) -> CapturedStep:
    return msgspec.structs.replace(step, precision=Precision.AMP_BFLOAT16, **changes)


def test_words_of_a_loop() -> None:
    loop = Loop(optimizer="adamw_fused", in_backward=True, loss_chunks=8)
    assert str(loop) == "adamw_fused in backward, cross entropy in 8 slices"
    assert loop.options == "--optimizer adamw_fused --in-backward --loss-chunks 8"
    assert loop.changes == {"optimizer": "adamw_fused", "in_backward": True, "loss_chunks": 8}
    assert (str(Loop()), Loop().options, Loop().changes) == ("", "", {})
    assert str(Loop(param_groups=4, precision="amp_bfloat16")) == "updates in 4 groups, amp_bfloat16"
    assert [each.is_exact for each in (loop, Loop(optimizer="adam8bit"), Loop(precision="float16"))] == [
        *(True, False, False)
    ]


def test_an_update_grows_by_its_temporaries() -> None:
    """By the root of the states, 8 MiB; a fused one, one in backward and none by nothing."""
    assert temporary_bytes(linear()) == 8 * MIB
    for step in (linear("adamw_fused"), linear(in_backward=True), msgspec.structs.replace(linear(), operations=())):
        assert temporary_bytes(step) == 0


def test_an_update_may_be_all_that_has_no_room() -> None:
    """Backward holds weights and gradients of 8 MiB each, states of 16, and 257 KiB of inputs, logits and loss."""
    assert fits_but_for_update(linear(), 33 * MIB)
    assert not fits_but_for_update(linear(), 32 * MIB)
    loops = (Loop(optimizer="adamw_fused"), Loop(param_groups=8), Loop(optimizer="adamw8bit"), Loop(in_backward=True))
    assert [each.is_of_update for each in loops] == [True, True, False, False]


@pytest.mark.parametrize(
    ("step", "room", "expected"),
    [
        (linear(), 100, ["adamw_fused", "adamw_fused in backward", "adamw8bit"]),
        (linear(), 20, ["adamw_fused", "adamw_fused in backward", "adamw8bit", "adamw8bit in backward"]),
        (linear("adamw_fused"), 100, ["updates in backward", "adamw8bit"]),
        (linear(), 1000, []),
        (
            msgspec.structs.replace(linear(), optimizer="momentum_decay"),
            100,
            ["momentum_decay_fused", "momentum_decay_fused in backward"],
        ),
        (msgspec.structs.replace(linear(), optimizer="radam"), 100, ["updates in 8 groups", "updates in backward"]),
        (msgspec.structs.replace(linear(), optimizer="radam", param_groups=2), 100, ["updates in backward"]),
        (linear("adamw8bit", in_backward=True), 100, []),
        (linear(tokens=10), 1000, []),
        (
            msgspec.structs.replace(linear("adamw_fused", tokens=120), optimizer="none"),
            1000,
            ["cross entropy in 4 slices"],
        ),
    ],
)
def test_loops_that_save_a_share_that_counts(step: CapturedStep, room: int, expected: list[str]) -> None:
    """Of 5 % of so many MiB: the root of 8, the gradient of 8 and the states of 16 MiB, logits of 256 KiB a token.

    8 bits leave 8 + 8 + 4 MiB, which is more than 80 % of 20.
    """
    assert [str(each) for each in lighter_loops(mixed(step), room * MIB, 1)] == expected


def test_what_excludes_updates_in_backward() -> None:
    step = linear("adamw_fused")
    assert not any(each.in_backward for each in lighter_loops(mixed(step), 100 * MIB, 2))
    scaled = msgspec.structs.replace(step, precision=Precision.AMP_FLOAT16)
    assert not any(each.in_backward for each in lighter_loops(scaled, 100 * MIB, 1))
    assert lighter_loops(msgspec.structs.replace(step, mode=Mode.INFERENCE), MIB, 1) == ()


@pytest.mark.parametrize(
    ("device", "mixed"), [("cpu", "amp_bfloat16"), ("cuda 8.0", "amp_bfloat16"), ("cuda 7.5", "amp_float16")]
)
def test_a_step_in_float32_may_be_mixed(device: str, mixed: str) -> None:
    """With the optimizer of the first loop, and of the last, in the narrow type of the card's tensor cores."""
    step = msgspec.structs.replace(linear(), device=device)
    found = [str(each) for each in lighter_loops(step, 100 * MIB, 1)]
    assert found[-2:] == [f"adamw_fused, {mixed}", f"adamw8bit, {mixed}"]


def test_autocast_is_to_float16_where_tensor_cores_have_no_bfloat16() -> None:
    """Before Ampere; what was asked for in float16 stays."""
    for device, precision, expected in (
        ("cuda 7.5", "amp_bfloat16", ["adamw_fused, amp_float16"]),
        ("cuda 8.0", "amp_bfloat16", []),
        ("cuda 7.5", "amp_float16", []),
    ):
        step = msgspec.structs.replace(linear(), device=device, precision=Precision(precision))
        assert [str(each) for each in lighter_loops(step, 100 * MIB, 1) if each.precision] == expected


def test_frozen_weights_may_be_in_bfloat16_where_blocks_are_checkpointed() -> None:
    """Of 8 MiB of weights of sequences 8 are frozen without a gradient, which is more than 5 % of 100, not of 200.

    Where the weights alone have no room, no other loop may fit.
    """
    step = mixed(blocks(1), sample="sequence")
    storages = (each for each in step.storages if each.kind is not BufferKind.WEIGHT_GRADIENT)
    frozen = msgspec.structs.replace(step, storages=tuple(storages), operations=())
    narrow = "bfloat16, each block checkpointed"
    for asked, mib, is_there in ((frozen, 100, True), (frozen, 200, False), (step, 100, False)):
        assert (narrow in map(str, lighter_loops(asked, mib * MIB, 1))) is is_there
    assert list(map(str, lighter_loops(frozen, 7 * MIB, 1))) == [narrow]
    assert narrow not in map(str, lighter_loops(msgspec.structs.replace(frozen, sample="image"), 100 * MIB, 1))


def test_float16_is_not_updated_in_backward() -> None:
    """A scaler looks at all gradients first; in bfloat16 states of 8 bits leave more than 80 % of 20 MiB, as above."""
    for device, where in (("cuda 7.5", ""), ("cuda 8.0", " in backward")):
        found = lighter_loops(msgspec.structs.replace(linear(), device=device), 20 * MIB, 1)
        assert [str(each).partition(",")[0] for each in found if each.precision][-1] == f"adamw8bit{where}"


def test_blocks_are_the_repeated_class_with_most_parameters() -> None:
    """Two layers with parts in a list, whose weights are 8 MiB; each is checkpointed in a loop, unless it is."""
    container = "torch.nn.modules.container.ModuleList"
    paths = [("layers", container), ("layers.0", "x.Layer"), ("layers.1", "x.Layer"), ("layers.0.fc", "x.Linear")]
    modules = tuple(Module(*each) for each in (*paths, ("layers.1.fc", "x.Linear")))
    step = mixed(linear(), modules=(*linear().modules, *modules))
    storages = [
        msgspec.structs.replace(each, name="layers.0.fc.weight") if each.kind is BufferKind.WEIGHTS else each
        for each in step.storages
    ]
    step = msgspec.structs.replace(step, storages=tuple(storages))
    assert (class_of_blocks(linear()), class_of_blocks(step)) == ("", "x.Layer")
    found = [each for each in lighter_loops(step, 100 * MIB, 1) if each.checkpointing]
    assert [(str(each), each.is_exact) for each in found] == [("adamw_fused, each block checkpointed", True)]
    wrapped = (*step.modules, Module("layers.0", "torch.distributed.CheckpointWrapper"))
    again = msgspec.structs.replace(step, modules=wrapped)
    assert not any(each.checkpointing for each in lighter_loops(again, 100 * MIB, 1))


def test_parts_of_most_parameters_stand_for_blocks_that_have_few() -> None:
    """Two of five equal modules are in a list of their class; with the others, of two classes, they are all parameters.

    Where the list has four of five, it has the blocks.
    """
    container = "torch.nn.modules.container.ModuleList"
    holders = {"mid": container, "down": container, "up": container}
    parts = {"mid.0": "x.Res", "mid.1": "x.Res", "down.0": "x.Res", "down.1": "x.Attn", "up.0": "x.Attn"}
    for moved, found in (({}, ("x.Res", "x.Attn")), ({"mid.2": "x.Res", "mid.3": "x.Res"}, ("x.Res",))):
        kinds = {**holders, **parts, **moved}
        inner = [Module(f"{each}.fc", "x.Linear") for each in kinds if "." in each]
        storage = next(each for each in linear().storages if each.kind is BufferKind.WEIGHTS)
        weights = tuple(msgspec.structs.replace(storage, name=f"{each.path}.weight") for each in inner)
        step = mixed(linear(), modules=(*(Module(*each) for each in kinds.items()), *inner))
        step = msgspec.structs.replace(step, storages=(*step.storages[1:], *weights))
        assert checkpointed_classes(step) == found


def test_logits_under_autocast_are_those_of_the_copy_in_float32() -> None:
    """Logarithms of 12 tokens by 64 Ki classes in bfloat16 are 1.5 MiB; the loss reads them in float32, twice that."""
    step = linear(tokens=12)
    operations = list(step.operations)
    at, loss = next((at, each) for at, each in enumerate(operations) if "nll_loss_forward" in each.name)
    narrow = next(each for each in loss.operands if each.access.reads)
    tensors = [*step.tensors, step.tensors[narrow.memory]]
    tensors[narrow.memory] = msgspec.structs.replace(tensors[-1], element_type="bfloat16")
    step = msgspec.structs.replace(step, tensors=tuple(tensors))
    assert logits_bytes(step) == 3 * MIB // 2
    copy = msgspec.structs.replace(narrow, memory=len(tensors) - 1)
    operations[at] = msgspec.structs.replace(loss, operands=(copy,))
    assert logits_bytes(msgspec.structs.replace(step, operations=tuple(operations))) == 3 * MIB


def test_slices_have_a_quarter_of_a_gibibyte_of_logits() -> None:
    """4097 to 8192 tokens of 256 KiB make eight of them; fewer than four are not cut, nor more than 64."""
    assert logits_bytes(linear(tokens=12)) == 3 * MIB
    assert logits_bytes(msgspec.structs.replace(chain(), operations=chain().operations[:5])) == 0
    for tokens, slices in ((10, 4), (4096, 4), (4097, 8), (8192, 8), (10**6, 64)):
        assert slices_of(linear(tokens=tokens), MIB) == slices
    assert slices_of(linear(tokens=1), 40 * MIB) is None


def test_weights_and_activations_are_kept_in_any_loop_that_recomputes_nothing() -> None:
    """Eight blocks have 8 MiB of weights and save 5 MiB of each sample; logits, which may be cut, do not count.

    Twelve tokens save 3 MiB of logarithms alone, beside 8 MiB of weights.
    """
    assert kept_bytes(blocks(16)) == (8 + 8 * 5 * 16) * MIB
    assert kept_bytes(linear(tokens=12)) == 8 * MIB
