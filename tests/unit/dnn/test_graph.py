from tests.toy import toy_graph
from vdnnsim.dnn.layers import LayerKind, Stage
from vdnnsim.dnn.networks import build_network


def test_a_fork_is_counted_by_its_readers_and_a_join_reads_all_branches() -> None:
    """conv1 (layer 0) -> map 1, read by `left` (1) and `right` (2) -> maps 2 and 3, both read by `join` (3) -> map 4.

    Backward of `left` and `right` reads map 1 again; the join saves nothing, so maps 2 and 3 end with forward. The
    FC layer (4) saves map 4; the loss (5) saves its own Y, map 6, which nobody reads in forward.
    """
    graph = toy_graph("conv1 conv; left conv; right conv conv1; join concat left right")

    assert [each.name for each in graph.maps] == ["input", "conv1", "left", "right", "join", "fc", "loss"]
    assert [each.index for each in graph.maps] == [0, 1, 2, 3, 4, 5, 6]
    assert [each.producer for each in graph.maps] == [None, 0, 1, 2, 3, 4, 5]
    assert [each.consumers for each in graph.maps] == [(0,), (1, 2), (3,), (3,), (4,), (5,), ()]
    assert [each.saved_for for each in graph.maps] == [(0,), (1, 2), (), (), (4,), (), (5,)]


def test_gradients_and_stages_of_maps() -> None:
    graph = toy_graph("conv conv relu")
    assert [each.name for each in graph.maps if each.needs_gradient] == ["conv", "fc"]
    # Maps belong to the stage of their producer and the input to the features.
    assert [each.stage for each in graph.maps] == [Stage.FEATURES] * 2 + [Stage.CLASSIFIER] * 2


def test_an_activation_shares_the_map_of_the_layer_before_it() -> None:
    """The layers conv (0), its rectifier (1) and the pool (2) share map 1: it is written, rewritten, read.

    Backward needs it for the rectifier, whose Y it is, and for the pool, whose X it is; not for conv, which reads X.
    """
    graph = toy_graph("conv conv relu; pool pool")
    shared = graph.maps[1]

    assert (shared.producer, shared.rewriters, shared.consumers, shared.saved_for) == (0, (1,), (2,), (1, 2))
    assert len(graph.maps) == 5, "input, conv, pool, fc, loss: none for the rectifier"


def test_the_kind_of_a_map_is_that_of_its_readers() -> None:
    """Map 1 is read by a pool first and by a CONV layer second: CONV. Map 2 only by the join: CONCAT.

    The join's map is the X of the FC layer, the FC layer's that of the loss, and nobody reads the loss.
    """
    graph = toy_graph("conv1 conv relu; pool pool; conv2 conv relu conv1; join concat pool conv2")

    kinds = {each.name: graph.map_kind(each.index) for each in graph.maps}
    assert kinds["input"] is kinds["conv1"] is LayerKind.CONV
    assert kinds["pool"] is kinds["conv2"] is LayerKind.CONCAT
    assert (kinds["join"], kinds["fc"], kinds["loss"]) == (LayerKind.FC, LayerKind.LOSS, None)


def test_the_first_module_of_googlenet_forks_its_input_to_four_branches() -> None:
    """pool2 feeds 1x1, 3x3_reduce, 5x5_reduce and pool of module 3a: reference count 4, and all four save it.

    Each branch ends in a map with one reader, the join. The join's map is forked again, to the four branches of 3b.
    """
    graph = build_network("googlenet")
    maps = {each.name: each for each in graph.maps}

    def names(layers: tuple[int, ...]) -> list[str]:
        return [graph.layers[index].name for index in layers]

    branches = ["3a/1x1", "3a/3x3_reduce", "3a/5x5_reduce", "3a/pool"]
    assert names(maps["pool2"].consumers) == branches
    assert names(maps["pool2"].saved_for) == ["pool2", *branches], "a POOL layer also saves its own Y"
    assert graph.map_kind(maps["pool2"].index) is LayerKind.CONV
    for branch in ("3a/1x1", "3a/3x3", "3a/5x5", "3a/pool_projection"):
        assert names(maps[branch].consumers) == ["3a"]
        assert names(maps[branch].rewriters) == [f"{branch}/relu"]
    assert names(maps["3a"].consumers) == ["3b/1x1", "3b/3x3_reduce", "3b/5x5_reduce", "3b/pool"]
    assert names(maps["3b"].consumers) == ["pool3"]
    assert graph.map_kind(maps["3b"].index) is LayerKind.POOL
    # 1x1, then 3x3 with its reduction, then 5x5 with its, then pool with its projection, each CONV before its ACTV.
    module = [layer.name for layer in build_network("googlenet").layers if layer.name.startswith("3a/")]
    convolutions = "1x1 3x3_reduce 3x3 5x5_reduce 5x5 pool_projection".split()
    expected = [f"3a/{each}{behind}" for each in convolutions for behind in ("", "/relu")]
    assert module == [*expected[:-2], "3a/pool", *expected[-2:]]
