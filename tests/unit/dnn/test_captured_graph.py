"""The layers of captured steps, worked out by hand from `tests/captured_steps.py`."""

import msgspec
import pytest

from tests.captured_steps import DW, MAP, WEIGHTS, Recording, W, X, Y, chain, checkpointed, residual
from tests.operands import of_role
from vdnnsim.dnn.captured_graph import Layering
from vdnnsim.dnn.captured_groups import _longest_descent, groups_of, kind_of, operator_name
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.layers import LayerKind, Phase
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.step import Access, BufferKind
from vdnnsim.dnn.workload import Mode
from vdnnsim.errors import ScenarioError

CHAIN = CapturedWorkload.of(chain())


def test_operations_of_one_module_are_a_layer_of_the_kind_of_its_main_operation() -> None:
    """The change of shape (4) writes nothing, so pool has it; the ones of the loss (8) run before its backward."""
    assert [(each.name, each.kind, each.forward, each.backward, each.update) for each in groups_of(chain())] == [
        ("conv", LayerKind.CONV, (0,), (16,), ()),
        ("bn", LayerKind.BN, (1,), (15,), ()),
        ("relu", LayerKind.ACTV, (2,), (14,), ()),
        ("pool", LayerKind.POOL, (3, 4), (13,), ()),
        ("fc", LayerKind.FC, (5,), (11, 12), ()),
        ("nll_loss_forward", LayerKind.LOSS, (6, 7), (8, 9, 10), ()),
        ("optimizer", LayerKind.OTHER, (), (), (17,)),
    ]


def test_an_instance_normalization_normalizes_no_batch() -> None:
    """PyTorch runs that of 2 images of 4 channels as a batch normalization of one image of 8."""
    step = chain(2)
    norm = next(each for each in step.operations if "batch_norm" in each.name)
    read = norm.operands[0].memory
    tensors = list(step.tensors)
    tensors[read] = msgspec.structs.replace(tensors[read], shape=(1, 8, 2, 2))
    kinds = [kind_of(norm, each) for each in (step, msgspec.structs.replace(step, tensors=tuple(tensors)))]
    assert kinds == [LayerKind.BN, LayerKind.LN]


def test_a_module_that_runs_twice_is_two_layers_and_what_a_parent_does_is_named_after_it() -> None:
    """The addition in backward (12) is of no forward: stem's backward follows it, so stem has it."""
    assert [(each.name, each.forward, each.backward) for each in groups_of(residual())] == [
        ("stem", (0,), (12, 13)),
        ("layer1.0.conv1", (1,), (11,)),
        ("layer1.0.relu", (2,), (10,)),
        ("layer1.0.conv2", (3,), (9,)),
        ("layer1.0 (add)", (4,), ()),
        ("layer1.0.relu 2", (5,), (8,)),
        ("mean", (6,), (7,)),
    ]


def test_what_is_computed_again_belongs_to_the_layer_whose_backward_follows() -> None:
    """Layers of backward as captured: none, 2, then fc and relu again for relu, 1 and 1, then of these: 1, 0."""
    assert [(each.name, each.backward) for each in groups_of(checkpointed())] == [
        ("block.fc", (8,)),
        ("block.relu", (5, 6, 7)),
        ("head", (3, 4)),
    ]


@pytest.mark.parametrize("step", [chain(), residual(), checkpointed()], ids=lambda each: each.model)
def test_layers_run_back_in_the_order_that_was_captured(step: object) -> None:
    view = CapturedWorkload.of(step)  # type: ignore[arg-type]
    layers, backward = view.graph.layers, Phase.BACKWARD
    runs = [view.step.operations_of(each.index, backward) for each in reversed(layers) if each.backward_phases]
    assert [x for run in runs for x in run] == [x for x in view.step.operations if x.phase is backward]


def test_the_longest_descent_keeps_as_many_as_can_stay() -> None:
    """Of 3 2 0 1 1 0 all but the first 0; of 1 1 9 0 all but 9; of a rise the last."""
    assert _longest_descent([3, 2, 0, 1, 1, 0]) == [0, 1, 3, 4, 5]
    assert _longest_descent([1, 1, 9, 0]) == [0, 1, 3]
    assert _longest_descent([0, 1, 2]) == [2]
    assert _longest_descent([]) == []


def test_maps_and_what_layers_read_write_and_save() -> None:
    """The loss (12) is touched by its own forward alone and is no map; logs (11) are read by its backward."""
    maps = CHAIN.graph.maps
    assert [(each.name, each.producer, each.consumers, each.rewriters, each.saved_for) for each in maps] == [
        ("input", None, (0,), (), (0,)),
        ("conv", 0, (1,), (), (1,)),
        ("bn", 1, (3,), (2,), (2, 3)),
        ("pool", 3, (4,), (), (4,)),
        ("fc", 4, (5,), (), ()),
        ("logs", 5, (), (), (5,)),
    ]
    assert [each.shape for each in maps[:4]] == [MapShape(1, 2, 2)] * 3 + [MapShape(1)]
    assert [each.is_constant for each in maps] == [True, False, False, False, False, True]
    # Layers know what they read write and save.
    layers = CHAIN.graph.layers
    assert [(each.inputs, each.outputs, each.saved_maps, each.in_place) for each in layers] == [
        ((0,), (1,), (0,), False),
        ((1,), (2,), (1,), False),
        ((2,), (2,), (2,), True),
        ((2,), (3,), (2,), False),
        ((3,), (4,), (3,), False),
        ((4,), (5,), (5,), False),
        ((), (), (), False),
    ]
    assert [each.weights_of for each in layers] == [0, 1, None, None, 4, None, None]
    assert [each.parameters for each in layers] == [1, 1, 0, 0, 1, 0, 0]
    assert CHAIN.graph.parameters == 3
    assert [each.needs_input_gradient for each in layers] == [False, True, True, True, True, True, False]
    assert layers[0].training_phases == (Phase.FORWARD, Phase.BACKWARD)
    assert layers[6].training_phases == ()
    assert (layers[0].work.forward_flop, layers[4].work.backward_flop) == (8, 4)


def test_storages_belong_to_maps_and_layers_and_live_until_the_program_lets_go() -> None:
    """What only backward of the loss touches (13, 14) and the loss (12) are workspaces of layer 5."""
    kinds = [(each.kind, each.owner) for each in CHAIN.step.storages]
    workspace, gradient, weights = BufferKind.WORKSPACE, BufferKind.GRADIENT_MAP, BufferKind.WEIGHTS
    assert kinds[:3] == [(weights, 0), (weights, 1), (weights, 4)]
    assert kinds[3:5] == [(BufferKind.FEATURE_MAP, 0), (BufferKind.LABELS, 5)]
    assert kinds[7] == (BufferKind.STATISTICS, 1)
    assert kinds[9] == (BufferKind.STATISTICS, 3)
    assert kinds[12:17] == [(workspace, 5), (workspace, 5), (workspace, 5), (gradient, 4), (gradient, 3)]
    assert kinds[17:] == [
        (BufferKind.WEIGHT_GRADIENT, 4),
        (gradient, 2),
        (gradient, 2),
        (gradient, 1),
        (BufferKind.WEIGHT_GRADIENT, 1),
        (BufferKind.WEIGHT_GRADIENT, 0),
    ]
    # Operations are 0 to 17. bn (6) is read by relu's backward, 14; the loss (12) is held beyond the step. What is
    # held longer than it is read is held by the operation after which it is freed. To the end are held the input (3),
    # the labels (4) and the loss; weight gradients are read there anyway.
    ends = [each.freed_after for each in CHAIN.step.storages]
    assert [ends[each] for each in (0, 3, 6, 12, 22)] == [None, None, 14, None, None]
    assert [each.holds for each in CHAIN.step.operations] == [()] * 17 + [(3, 4, 12)]
    storages = list(chain().storages)
    storages[10] = msgspec.structs.replace(storages[10], freed_after=9)
    longer = CapturedWorkload.of(msgspec.structs.replace(chain(), storages=tuple(storages)))
    assert longer.step.operations[9].holds == (10,)
    assert longer.step.storages[10].freed_after == 9
    # 32 B of images, conv and bn, 8 of moments, pool, logs, 16 of indices and labels; what is fc's nobody keeps.
    assert CHAIN.step.saved == (3, 5, 7, 6, 9, 8, 11, 4)
    assert CHAIN.step.saved_bytes == 3 * 32 + 8 + 16 + 8 + 8 + 16


def test_an_addition_in_place_rewrites_one_map_and_reads_the_other() -> None:
    """Maps: input, stem, conv1, relu, conv2. The addition (4) and the second relu (5) rewrite conv2's."""
    graph = CapturedWorkload.of(residual()).graph
    assert [(each.consumers, each.rewriters, each.saved_for) for each in graph.maps[:5]] == [
        ((0,), (), (0,)),
        ((1, 4), (), (1,)),
        ((2,), (), ()),
        ((3,), (), (2, 3)),
        ((6,), (4, 5), (5,)),
    ]
    addition = graph.layers[4]
    assert (addition.inputs, addition.outputs, addition.in_place) == ((4, 1), (4,), True)
    assert addition.backward_phases == ()


def test_what_is_computed_again_is_a_workspace_and_starts_from_a_map_of_another_layer() -> None:
    """The input is read by fc again, whose operation is relu's; fc's own backward reads it as well."""
    view = CapturedWorkload.of(checkpointed())
    assert view.graph.layers[1].saved_maps == view.graph.layers[0].saved_maps == (0,)
    assert view.graph.maps[0].saved_for == (0, 1)
    assert {view.step.storages[each].kind for each in (8, 9)} == {BufferKind.WORKSPACE}
    assert view.step.saved == (2, 4)


def test_the_output_of_inference_is_a_map_that_nobody_reads() -> None:
    """Of the chain the first six operations: fc's output is the last map."""
    step = chain()
    forward = msgspec.structs.replace(step, mode=Mode.INFERENCE, operations=step.operations[:6], optimizer="none")
    view = CapturedWorkload.of(forward)
    assert [each.name for each in view.graph.layers] == ["conv", "bn", "relu", "pool", "fc"]
    assert (view.graph.maps[-1].name, view.graph.maps[-1].consumers) == ("fc", ())
    assert {each.training_phases for each in view.graph.layers} == {(Phase.FORWARD,)}


def test_a_forward_without_maps_is_refused() -> None:
    step = chain()
    view = msgspec.structs.replace(step, operations=(step.operations[4],))
    with pytest.raises(ScenarioError, match="chain: no operation of its forward writes a feature map"):
        Layering(view)


@pytest.mark.parametrize(
    ("name", "word"),
    [("aten.convolution.default", "convolution"), ("mine::op.out", "op"), ("plain", "plain"), ("a.b", "b")],
)
def test_the_word_for_an_operator_is_between_its_library_and_its_overload(name: str, word: str) -> None:
    assert operator_name(name) == word


def test_narrow_weights_are_statistics_and_their_gradients_workspaces() -> None:
    """As autocast has it: made by bn in forward (7); made by backward of fc (17) and freed there, by 12."""
    step = chain()
    storages = list(step.storages)
    storages[7] = msgspec.structs.replace(storages[7], kind=BufferKind.WEIGHTS)
    storages[17] = msgspec.structs.replace(storages[17], freed_after=12)
    view = CapturedWorkload.of(msgspec.structs.replace(step, storages=tuple(storages), operations=step.operations[:17]))
    kinds = [(each.kind, each.owner) for each in view.step.storages]
    assert (kinds[7], kinds[17]) == ((BufferKind.STATISTICS, 1), (BufferKind.WORKSPACE, 4))
    assert 7 in view.step.saved
    assert view.graph.layers[1].parameters == 1


def test_what_comes_before_the_first_map_belongs_to_its_layer() -> None:
    """A change of shape of the input, by the model, before conv: operations are one later."""
    step = chain()
    shape = msgspec.structs.replace(step.operations[4], operands=step.operations[0].operands[:1])
    forward = (shape, *step.operations[:6])
    groups = groups_of(msgspec.structs.replace(step, mode=Mode.INFERENCE, operations=forward))
    assert [(each.name, each.forward) for each in groups[:2]] == [("conv", (0, 1)), ("bn", (2,))]


def test_copies_out_of_what_was_gathered_are_no_main_operation() -> None:
    """An embedding of 4 B, and the copies of the next block's weights, which move 1,000 times as much."""
    r = Recording("gathered", 1, ("words", "block"))
    ids, table = r.memory("input", MAP, (1,), "int64", given=True), r.memory("words.weight", WEIGHTS, (4,), given=True)
    gathered, whole = r.memory("gathered", WEIGHTS, (1000,)), r.memory("whole", WEIGHTS, (1000,))
    x, y = r.memory("x", MAP, (1,)), r.memory("y", MAP, (1,), held=True)
    r.run("embedding", "words", Phase.FORWARD, reads=[(X, ids), (W, table)], writes=[(Y, x)])
    r.run("all_gather_copy_in", "block", Phase.FORWARD, writes=[(W, gathered)], aside=True)
    r.run("split_with_sizes_copy", "block", Phase.FORWARD, reads=[(W, gathered)], writes=[(W, whole)])
    r.run("mul", "", Phase.FORWARD, reads=[(X, x), (W, whole)], writes=[(Y, y)])
    first, _ = groups_of(r.step(optimizer="none"))
    assert (first.kind, first.forward) == (LayerKind.EMBEDDING, (0, 1, 2))


def test_names_of_layers_are_told_apart_whatever_modules_are_called() -> None:
    """The second call of relu would be `layer1.0.relu 2`, which is conv2's path here, and comes first."""
    step = residual()
    modules = [
        msgspec.structs.replace(each, path=each.path.replace("conv2", "relu 2"), kind=each.kind)
        for each in step.modules
    ]
    names = [each.name for each in groups_of(msgspec.structs.replace(step, modules=tuple(modules)))]
    assert names[2:6] == ["layer1.0.relu", "layer1.0.relu 2", "layer1.0 (add)", "layer1.0.relu 3"]


def test_what_is_written_once_more_is_updated() -> None:
    """A weight gradient that backward takes memory for and then copies into has one life, from the first to the end."""
    r = Recording("copied", 1, ("fc",))
    weight = r.memory("weight", WEIGHTS, (1,), given=True)
    x, y = r.memory("input", MAP, (1,), given=True), r.memory("y", MAP, (1,))
    gradient = r.memory("weight.grad", BufferKind.WEIGHT_GRADIENT, (1,), held=True)
    r.run("mul", "fc", Phase.FORWARD, reads=[(X, x), (W, weight)], writes=[(Y, y)], saves=[x])
    r.run("new_empty", "fc", Phase.BACKWARD, writes=[(DW, gradient)], forward=0)
    r.run("copy_", "fc", Phase.BACKWARD, reads=[(X, x)], writes=[(DW, gradient)], forward=0)
    step = CapturedWorkload.of(r.step(optimizer="none")).step
    found = [each.access for operation in step.operations for each in of_role(operation, DW)]
    assert found == [Access.WRITE, Access.UPDATE]


def test_what_is_freed_before_backward_is_not_kept() -> None:
    """Were the moments (7) of the chain freed with its pooling, operation 3, forward would keep all else it saves."""
    step = chain()
    freed = msgspec.structs.replace(step.storages[7], freed_after=3)
    early = msgspec.structs.replace(step, storages=(*step.storages[:7], freed, *step.storages[8:]))
    assert set(CapturedWorkload.of(step).step.saved) - set(CapturedWorkload.of(early).step.saved) == {7}
    assert step.saved_bytes - early.saved_bytes == 8
