"""What we say that autograd saves, against what it saves."""

import pytest

from tests.pytorch_twins.twin import Twin
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.saving import SavingRule, saving_by
from vdnnsim.dnn.workload import Workload

BATCH_SIZE = 8

TOLERANCE_BYTES = 100
"""The labels of a batch of 8 and the weight of the loss, 68 B, are no map of ours."""

AGREEING = [
    "alexnet",
    "overfeat",
    "vgg16",
    "vgg116",
    "vgg416",
    "vgg_a_8conv",
    "vgg_d_13conv",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "resnet20",
    "resnet110",
    "wrn_8_1",
    "wrn_16_4",
    "wrn_28_10",
    "lenet",
    "cifar10_quick",
    "p3d_resnet199",
    "tiny_linear",
    "tiny_residual",
]
"""Those for which our rule is autograd's. Not yet: caffenet and lstm_cnn (local response normalization), googlenet,
inception_v3 and tiny_forked (the mean over a map), lstm_rnn, gpt2_small and llama_1b (states, tokens, labels).
"""


def our_saved_bytes(graph: LayerGraph) -> int:
    workload = saving_by(Workload(graph, BATCH_SIZE), SavingRule.AUTOGRAD)
    maps = sum(workload.map_bytes(each.index) for each in graph.maps if workload.graph.maps[each.index].saved_for)
    return maps + sum(workload.statistics_bytes(layer) for layer in workload.graph.layers)


@pytest.mark.parametrize("network", AGREEING)
def test_we_say_what_autograd_saves(network: str) -> None:
    graph = build_network(network)

    assert our_saved_bytes(graph) == pytest.approx(Twin(graph, BATCH_SIZE).saved_bytes(), abs=TOLERANCE_BYTES)
