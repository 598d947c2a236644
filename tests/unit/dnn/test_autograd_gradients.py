"""Gradients as autograd's engine makes, hands on and adds up, and what becomes of those of weights; by hand.

Maps of one image of five elements in float16 hold 10 B, the logits and the loss 2 B; W of a CONV layer are 30 elements,
60 B, those of fc 6, 12 B.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.operands import of_role
from tests.toy import replay, toy_chain, toy_costs, toy_graph, toy_workload
from vdnnsim.analysis.memory import maximum_bytes
from vdnnsim.cost.table import KernelChoice
from vdnnsim.dnn.graph import GraphBuilder, LayerGraph
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.operator import SavingRule
from vdnnsim.dnn.shapes import MapShape
from vdnnsim.dnn.step import Access, BufferKind, Role, WeightGradients
from vdnnsim.dnn.workload import Mode, Workload
from vdnnsim.plans.lowering import lower
from vdnnsim.plans.schedule import iteration

D, W = Phase.BACKWARD_DATA, Phase.BACKWARD_WEIGHTS
READ, WRITE, UPDATE = Access.READ, Access.WRITE, Access.UPDATE


def by_autograd(graph: LayerGraph) -> Workload:
    return toy_workload(graph).saved_by(SavingRule.AUTOGRAD)


def gradients(workload: Workload) -> dict[str, list[tuple[str, Role, Access]]]:
    """The gradient maps that backward of each layer touches, where it computes any."""
    step = workload.step
    return {
        step.path_of(each): [
            (step.storages[operand.memory].name.removeprefix("gradient of "), operand.role, operand.access)
            for operand in of_role(each, Role.OUTPUT_GRADIENT, Role.INPUT_GRADIENT)
        ]
        for each in step.operations
        if each.phase is D
    }


def temporaries(workload: Workload) -> dict[str, int]:
    """The temporaries of data gradients, where there are any, but that of the loss, 2 B."""
    step = workload.step
    data = {step.path_of(each): each.temporary_bytes for each in step.operations if each.phase is D}
    return {path: nbytes for path, nbytes in data.items() if nbytes and path != "loss"}


def residual() -> LayerGraph:
    """stem, left over it, sum of the two."""
    return toy_graph("stem conv; left conv; sum add left stem")


def test_a_sum_hands_its_gradient_on_and_the_next_is_added_to_it() -> None:
    """That of left, which reads dY, is computed apart, 10 B, and added to dY, which then nobody else holds."""
    workload = by_autograd(residual())

    assert gradients(workload) == {
        "loss": [("fc", Role.INPUT_GRADIENT, WRITE)],
        "fc": [("fc", Role.OUTPUT_GRADIENT, READ), ("sum", Role.INPUT_GRADIENT, WRITE)],
        "sum": [
            ("sum", Role.OUTPUT_GRADIENT, READ),
            ("sum", Role.INPUT_GRADIENT, READ),
            ("sum", Role.INPUT_GRADIENT, READ),
        ],
        "left": [("sum", Role.OUTPUT_GRADIENT, READ), ("sum", Role.INPUT_GRADIENT, UPDATE)],
    }
    assert temporaries(workload) == {"left": 10}
    kinds = [each.kind for each in workload.step.storages]
    assert kinds.count(BufferKind.GRADIENT_MAP) == 2
    by_paper = [each.kind for each in toy_workload(residual()).step.storages]
    assert by_paper.count(BufferKind.GRADIENT_MAP) == 4


def joined(*, sum_first: bool) -> LayerGraph:
    """stem, left over it, and right over it; left + stem, joined with right; right runs before or after that sum."""
    middle = ["sum add left stem", "right conv stem"]
    text = "; ".join(["stem conv", "left conv", *(middle if sum_first else reversed(middle))])
    return toy_graph(f"{text}; join concat sum right")


def test_a_sum_hands_on_a_copy_where_another_would_see_what_is_added() -> None:
    """Backward of right adds to the gradient of stem while left has yet to read the same as its dY.

    So stem is handed a copy, to which right and then left add what they compute apart, 10 B each.
    """
    workload = by_autograd(joined(sum_first=False))
    found = gradients(workload)
    assert found["sum"] == [
        ("sum", Role.OUTPUT_GRADIENT, READ),
        ("sum", Role.INPUT_GRADIENT, READ),
        ("stem", Role.INPUT_GRADIENT, WRITE),
    ]
    assert found["right"] == [("right", Role.OUTPUT_GRADIENT, READ), ("stem", Role.INPUT_GRADIENT, UPDATE)]
    assert found["left"] == [("sum", Role.OUTPUT_GRADIENT, READ), ("stem", Role.INPUT_GRADIENT, UPDATE)]
    assert temporaries(workload) == {"right": 10, "left": 10}
    names = [each.name for each in workload.step.storages if each.kind is BufferKind.GRADIENT_MAP]
    assert names == [f"gradient of {name}" for name in ("fc", "join", "sum", "right", "stem")]
    # Right, which runs last, has begun the gradient of stem; the sum adds its dY, and computes nothing apart.
    workload = by_autograd(joined(sum_first=True))
    found = gradients(workload)
    assert found["right"] == [("right", Role.OUTPUT_GRADIENT, READ), ("stem", Role.INPUT_GRADIENT, WRITE)]
    assert found["sum"] == [
        ("sum", Role.OUTPUT_GRADIENT, READ),
        ("sum", Role.INPUT_GRADIENT, READ),
        ("stem", Role.INPUT_GRADIENT, UPDATE),
    ]
    assert temporaries(workload) == {"left": 10}


def test_the_gradient_of_a_rectifier_in_place_is_new_memory() -> None:
    """It does not lie over dY, as the papers have it."""
    graph = toy_graph("conv conv relu")

    assert gradients(by_autograd(graph))["conv/relu"] == [
        ("conv", Role.OUTPUT_GRADIENT, READ),
        ("conv before its rectifier", Role.INPUT_GRADIENT, WRITE),
    ]
    assert gradients(toy_workload(graph))["conv/relu"] == [
        ("conv", Role.OUTPUT_GRADIENT, READ),
        ("conv", Role.INPUT_GRADIENT, WRITE),
    ]


@pytest.mark.parametrize("graph", [residual, lambda: joined(sum_first=False), lambda: joined(sum_first=True)])
def test_gradients_are_written_before_they_are_read_and_each_storage_is_touched(
    graph: Callable[[], LayerGraph],
) -> None:
    workload = by_autograd(graph())
    written: set[int] = set()
    for each in workload.step.operations:
        for operand in of_role(each, Role.OUTPUT_GRADIENT, Role.INPUT_GRADIENT):
            assert operand.access is WRITE or operand.memory in written
            written.add(operand.memory)
    made = {n for n, each in enumerate(workload.step.storages) if each.kind is BufferKind.GRADIENT_MAP}

    assert written == made


def peak_bytes(workload: Workload) -> int:
    """The most bytes in use in an iteration with nothing managed."""
    costs = toy_costs(workload, {})
    table = costs.table(workload)
    kernels: KernelChoice = {key: options[0] for key, options in table.kernels.items()}
    return maximum_bytes(replay(lower(iteration(workload), workload, kernels, label="hand", algorithms="p"), costs))


@pytest.mark.parametrize(
    ("weight_gradients", "access", "temporary_bytes", "expected"),
    [
        # W and dW, 144 B; most is held in the data gradient of fc: input and conv1, gradients of fc and conv1, 32 B.
        (WeightGradients.HELD, WRITE, (0, 0), 144 + 8 + 32),
        # W, 72 B; at last all dW, the input and the gradient of conv1. Before, with dW of fc: 32 + 12 B.
        (WeightGradients.DROPPED, WRITE, (0, 0), 72 + 8 + 72 + 20),
        # W and dW, and in the last kernel a new dW of conv1 beside the input and the gradient of conv1.
        (WeightGradients.KEPT, UPDATE, (12, 60), 144 + 8 + 20 + 60),
    ],
)
def test_weight_gradients_are_held_or_dropped_or_kept(
    weight_gradients: WeightGradients, access: Access, temporary_bytes: tuple[int, int], expected: int
) -> None:
    """Maps of conv1 hold 10 B, those of fc and the loss 2 B, a label 8 B. That of fc comes first, that of conv1 last.

    Those that are kept are given, and are added to.
    """
    workload = replace(by_autograd(toy_chain(1)), weight_gradients=weight_gradients)
    step = workload.step
    made = [each for each in step.operations if each.phase is W]

    assert [(workload.step.path_of(each), each.temporary_bytes) for each in made] == [
        ("fc", temporary_bytes[0]),
        ("conv1", temporary_bytes[1]),
    ]
    assert {operand.access for each in made for operand in of_role(each, Role.WEIGHT_GRADIENT)} == {access}
    storages = [each for each in step.storages if each.kind is BufferKind.WEIGHT_GRADIENT]
    assert [(each.nbytes, each.given) for each in storages] == [(60, access is UPDATE), (12, access is UPDATE)]
    assert peak_bytes(workload) == expected


def test_the_loss_reads_a_label_of_each_image() -> None:
    """Three images, an int64 each, there from the start; backward reads them, and so does an inference with a loss.

    Two sequences of three steps have six labels.
    """
    workload = replace(by_autograd(toy_chain(1)), batch_size=3)
    step = workload.step
    (labels,) = [number for number, each in enumerate(step.storages) if each.kind is BufferKind.LABELS]

    assert (step.storages[labels].nbytes, step.storages[labels].given) == (24, True)
    assert step.tensors[labels].shape == (3,)
    reading = [
        (step.path_of(each), each.phase)
        for each in step.operations
        if labels in {operand.memory for operand in each.operands}
    ]
    assert reading == [("loss", Phase.FORWARD), ("loss", D)]
    assert labels in step.saved
    net = GraphBuilder("steps", MapShape(5, steps=3))
    sequences = replace(by_autograd(net.build(net.conv("conv", 0, 5, 1, relu=False))), batch_size=2)
    for each, label_bytes in ((replace(workload, mode=Mode.INFERENCE), 24), (sequences, 48)):
        assert [one.nbytes for one in each.step.storages if one.kind is BufferKind.LABELS] == [label_bytes]
    assert not any(each.kind is BufferKind.LABELS for each in toy_workload(toy_chain(1)).step.storages)
