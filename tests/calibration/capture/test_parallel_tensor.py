"""Ranks over which each layer is split, captured as one of them."""

from typing import ClassVar

from tests.calibration.capture.ranks import (
    B,
    Decoder,
    F,
    Planned,
    captured,
    collectives,
    sizes,
)
from vdnnsim.dnn.collective import Collective, CollectiveKind
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind
from vdnnsim.units import Precision


def test_split_layers_gather_tokens_before_a_pair_and_scatter_them_behind_it() -> None:
    """Activations of 2 x 512 tokens and 16 features take 65,536 B in float32, one number of each token 4,096 B.

    The rows of the embedding are summed, then each rank takes its tokens. Of logits that are split by class the loss
    sums the maximum, the sum of exponentials, and the number of each token's own class. Behind backward the tokens of
    all are gathered for the embeddings. Gradients of five normalizations, of 64 B each and of its own tokens on each
    rank, are summed in each of three operators of AdamW that read them.
    """
    step = captured("tp=2")
    gather, scatter = ("all_gather", 65536), ("reduce_scatter", 65536)
    pair = [gather, scatter]

    assert sizes(step, F) == [("all_reduce", 65536), *pair * 4, gather, *[("all_reduce", 4096)] * 3]
    assert sizes(step, B) == [scatter, *pair * 4, gather]
    assert sizes(step, Phase.UPDATE) == [("all_reduce", 64)] * (5 * 2 * 3)
    assert {(each.ranks, each.stride) for each in collectives(step)} == {(2, 1)}
    assert not any(each.aside for each in step.operations)


def test_casts_of_split_logits_are_operations() -> None:
    """The loss casts 2 x 512 x 4 logits to float32 and back within DTensor, where autograd does not decompose `to`."""
    step = captured("fsdp=2,tp=2", precision=Precision.AMP_BFLOAT16)

    logits = 2 * 512 * 4
    casts = (each for each in step.operations if each.phase is F and each.name == "aten._to_copy.default")
    made = [step.storages[step.tensors[each.operands[-1].memory].storage].nbytes for each in casts]
    assert made[-3:-1] == [4 * logits, 2 * logits]
    assert {each.element_type for each in step.storages if each.constant} == {"int64"}, "labels alone"


def test_without_sequence_parallelism_all_ranks_have_all_tokens_between_pairs() -> None:
    """A pair sums its result in forward, and the gradient of its input in backward; so does the head."""
    step = captured("tp=2,sp=never")

    assert sizes(step, F) == [("all_reduce", 65536)] * 5 + [("all_reduce", 4096)] * 3
    assert sizes(step, B) == [("all_reduce", 65536)] * 5
    assert sizes(step, Phase.UPDATE) == []


def test_ranks_of_split_layers_are_neighbours_and_shards_are_apart() -> None:
    """Under `fsdp=4,tp=2` ranks 0 and 1 have a layer together, of whose halves ranks 0, 2, 4 and 6 have a quarter each.

    A layer has 12 x 16 x 16 + 64 numbers in split matrices and biases, and 16 + 4 x 16 in others, in float32. A rank
    holds, with the embeddings of 8 x 16 and 512 x 16, the last normalization and the head, all of it but for padding.
    """
    step = captured("fsdp=4,tp=2")
    split, whole = 12 * 16 * 16 + 64, 16 + 4 * 16
    rest_split, rest_whole = 2 * 8 * 16, 512 * 16 + 32

    shards = {(each.kind.value, each.nbytes) for each in collectives(step) if (each.ranks, each.stride) == (4, 2)}
    layer, rest = 4 * (split // 2 + whole), 4 * (rest_split // 2 + rest_whole)
    assert shards == {(kind, size) for kind in ("all_gather", "reduce_scatter") for size in (layer, rest)}
    assert {(each.ranks, each.stride) for each in collectives(step)} == {(2, 1), (4, 2)}
    given = sum(each.nbytes for each in step.storages if each.given and each.kind is BufferKind.WEIGHTS)
    assert given == (2 * layer + rest) // 4
    assert step.parameters == 2 * (split + whole) + rest_split + rest_whole


def test_checkpoints_gather_tokens_again() -> None:
    """Backward of a layer repeats its two gathers, and the scatter of attention, behind which the rest reads."""
    step = captured("tp=2", checkpointing="full")

    gather, scatter = ("all_gather", 65536), ("reduce_scatter", 65536)
    again = [gather, scatter, gather]
    layer = [*again, scatter, gather, scatter]
    assert sizes(step, B) == [scatter, gather, *layer, gather, *layer, gather]
    names = [each.name for each in step.operations if each.phase is B and each.name.startswith("_c10d")]
    assert len(names) == 2 + 2 * 7


def test_a_model_says_how_it_is_split() -> None:
    """Of 8 x 16 numbers of the tied weight a rank has a half, of a block's 2,128 all but 16 of the second bias.

    Its two gradients are `DTensor`s, of which autograd sums none in place.
    """
    step = captured("tp=2,sp=never", make_model=Planned)

    given = [each for each in step.storages if each.given and each.kind is BufferKind.WEIGHTS]
    assert sum(each.nbytes for each in given) == 4 * (8 * 16 // 2 + 2 * ((2128 - 16) // 2 + 16))
    assert [each.name for each in given].count("table.weight") == 1
    assert step.parameters == 8 * 16 + 2 * 2128
    sums = [each for each in step.operations if each.phase is B and each.name.startswith("aten.add")]
    tied = [each for each in sums if step.storages[step.tensors[each.operands[0].memory].storage].nbytes == 4 * 8 * 8]
    assert [each.name for each in tied] == ["aten.add.Tensor"]


class Gathered(Decoder):
    """Attention as of Phi-3 in transformers, on whole heads, and a head that is split by columns."""

    tp_plan: ClassVar[dict[str, str]] = {
        **{f"layers.*.attention.{each}_proj": "colwise_gather_output" for each in "qkv"},
        "layers.*.attention.o_proj": "rowwise_split_input",
        "head": "colwise",
    }


def test_columns_that_are_gathered_and_rows_of_a_whole_input() -> None:
    """Attention gathers its input, and then queries, keys and values; all of 65,536 B, as what its rows scatter.

    An MLP that the plan does not name is whole, on the tokens of the rank. The embedding is whole, too. In backward
    gradients of the scatter are gathered, and those of the input of rows, of queries, keys and values, each split by
    heads.
    """
    step = captured("tp=2", make_model=Gathered)

    gather, scatter = ("all_gather", 65536), ("reduce_scatter", 65536)
    assert sizes(step, F) == [*[*[gather] * 4, scatter] * 2, gather, *[("all_reduce", 4096)] * 3]
    assert sizes(step, B) == [scatter, *[gather, gather, scatter] * 2, gather]


def test_copies_of_split_layers_sum_their_parts() -> None:
    """Half of what is split, and all else, in one bucket of ranks two apart; with ZeRO-1 each parameter is then sent.

    A layer has 12 x 16 x 16 + 64 numbers in split matrices and biases, and 16 + 4 x 16 in others; the embedding and the
    head 8 x 16, positions 512 x 16, and the last normalization 32. Gradients of normalizations are summed over the
    tokens of neighbours before.
    """
    held = 4 * (2 * ((12 * 16 * 16 + 64) // 2 + 80) + 2 * 8 * 16 // 2 + 512 * 16 + 32)
    for layout in ("ddp=2,tp=2", "zero1=2,tp=2"):
        step = captured(layout)
        apart = [each for each in collectives(step) if each.stride == 2]
        assert apart[0] == Collective(CollectiveKind.ALL_REDUCE, held, "float32", 2, 2)
        assert sum(each.nbytes for each in apart[1:]) == (held if "zero1" in layout else 0)
        assert sizes(step, B).count(("all_reduce", 64)) == 5 * 2
        assert step.parameters == 2 * (12 * 16 * 16 + 64 + 80) + 2 * 8 * 16 + 512 * 16 + 32
        given = (each.nbytes for each in step.storages if each.given and each.kind is BufferKind.WEIGHTS)
        assert sum(given) == held
