from collections import Counter

import pytest

from tests.refusals import refusal
from vdnnsim.dnn.layers import LayerKind, Stage
from vdnnsim.dnn.networks import NETWORKS, build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import InputError

# What 20 more CONV layers in each of the five groups of VGG add. A layer of F filters over F channels has 9 F F + F
# weights: 36,928 for 64, 147,584 for 128, 590,080 for 256, 2,359,808 for 512, which two groups have. Its map has F
# times 224^2, 112^2, 56^2, 28^2 or 14^2 elements: 3,211,264, 1,605,632, 802,816, 401,408 and 100,352.
WEIGHTS_PER_STEP = 20 * (36_928 + 147_584 + 590_080 + 2 * 2_359_808)
ELEMENTS_PER_STEP = 20 * (3_211_264 + 1_605_632 + 802_816 + 401_408 + 100_352)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("alexnet", 61_100_840),
        ("overfeat", 145_920_872),
        ("googlenet", 6_998_552),
        ("vgg_a_8conv", 132_863_336),
        ("vgg_d_13conv", 138_357_544),
        ("vgg16", 143_667_240),
        ("vgg116", 143_667_240 + WEIGHTS_PER_STEP),
        ("vgg216", 143_667_240 + 2 * WEIGHTS_PER_STEP),
        ("vgg316", 143_667_240 + 3 * WEIGHTS_PER_STEP),
        ("vgg416", 143_667_240 + 4 * WEIGHTS_PER_STEP),
        ("resnet50", 25_557_032),
        ("inception_v3", 23_834_568),
        # conv1 75 x 32 + 32, conv2 800 x 32 + 32, conv3 800 x 64 + 64; ip1 (64 x 3 x 3) x 64 + 64, ip2 64 x 10 + 10.
        # conv1 25 x 20 + 20, conv2 (20 x 25) x 50 + 50, ip1 (50 x 4 x 4) x 500 + 500, ip2 500 x 10 + 10.
        ("lenet", 520 + 25_050 + 400_500 + 5_010),
        ("cifar10_quick", 2_432 + 25_632 + 51_264 + 36_928 + 650),
        ("caffenet", 60_965_224),
        # Four gates of 1,024 cells over 40 + 1,024 elements and two biases, then over 2 x 1,024; 8,000 states.
        ("lstm_rnn", 4_096 * (1_064 + 2) + 3 * 4_096 * (2_048 + 2) + 8_000 * 1_025),
        ("lstm_rnn_800", 4_096 * (1_064 + 2) + 3 * 4_096 * (2_048 + 2) + 8_000 * 1_025),
        # conv1 147 x 96, conv2 (48 x 25) x 384, conv3 (384 x 9) x 512, conv4 (256 x 9) x 512, conv5 (256 x 9) x 384,
        # fc6 (384 x 6 x 6) x 4,096, biases; lstm 4 x 256 x (4,096 + 256 + 2); fc8 256 x 101 + 101.
        ("lstm_cnn", 14_208 + 461_184 + 1_769_984 + 1_180_160 + 885_120 + 56_627_200 + 4_458_496 + 25_957),
        # ResNet-152 with 487 classes for 1,000, and in time 3 w w + 2 w in each of 3, 8 and 36 blocks of width w.
        ("p3d_resnet199", 60_192_808 - 513 * 2_049 + 3 * (12_288 + 128) + 8 * (49_152 + 256) + 36 * (196_608 + 512)),
        ("gpt2_small", 124_439_808),
        ("llama_1b", 1_100_048_384),
        # 75 x 16 + 16; 144 x 16 + 16; 144 x 32 + 32; 288 x 32 + 32; 288 x 64 + 64; (64 x 4 x 4) x 10 + 10.
        ("tiny_linear", 1_216 + 2_320 + 4_640 + 9_248 + 18_496 + 10_250),
        # 75 x 32 + 32; a: 288 x 32 + 32 and 800 x 16 + 16; b: 48 x 64 + 64, 576 x 32 + 32, 48 x 64 + 64; 96 x 10 + 10.
        ("tiny_forked", 2_432 + 9_248 + 12_816 + 3_136 + 18_464 + 3_136 + 970),
        # 75 x 32; a: 288 x 32, twice; b: 288 x 64, 576 x 64 and 32 x 64. BN: gamma and beta of 32, 32, 32 and thrice 64
        # channels. 64 x 10 + 10.
        ("tiny_residual", 2_400 + 2 * 9_216 + 18_432 + 36_864 + 2_048 + 2 * (3 * 32 + 3 * 64) + 650),
    ],
)
def test_parameters(name: str, parameters: int) -> None:
    """AlexNet, VGG-11, -16 and -19 as torchvision's models of those names count them, biases included.

    `vgg_a_8conv` is VGG-11, `vgg_d_13conv` everybody's VGG-16; the vDNN paper's VGG-16 with its 16 CONV layers is
    VGG-19. OverFeat and GoogLeNet without auxiliary classifiers from the layers of github.com/soumith/
    convnet-benchmarks, b458aab6. The deep ones add what stands above. ResNet-50 as torchvision's `resnet50` counts it,
    Inception-v3 as its `inception_v3` without the 3,326,696 of the auxiliary classifier in 27,161,264. Caffe's quick
    network of CIFAR-10 layer by layer, as are its LeNet, our own and the networks of sequences, a bias for each filter
    where it has one. CaffeNet as github.com/BVLC/caffe's bvlc_reference_caffenet counts it, GPT-2 as the `gpt2` of
    Hugging Face's transformers does, the Llama as TinyLlama 1.1B is published.
    """
    assert build_network(name).parameters == parameters


def test_every_network_is_counted_here() -> None:
    assert len(NETWORKS) == 33
    assert [build_network(name).name for name in NETWORKS] == list(NETWORKS)


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        # An ACTV behind every CONV and behind two of three FC layers.
        ("alexnet", {"CONV": 5, "ACTV": 7, "POOL": 3, "FC": 3}),
        ("overfeat", {"CONV": 5, "ACTV": 7, "POOL": 3, "FC": 3}),
        # 9 modules of 6 CONV layers and a stem of 3; behind the FC layer an ACTV, too. Pooling: 4 in the trunk, 9 in
        # modules, 1 average.
        ("googlenet", {"CONV": 57, "ACTV": 58, "POOL": 14, "CONCAT": 9, "FC": 1}),
        ("vgg_a_8conv", {"CONV": 8, "ACTV": 10, "POOL": 5, "FC": 3}),
        ("vgg_d_13conv", {"CONV": 13, "ACTV": 15, "POOL": 5, "FC": 3}),
        ("vgg16", {"CONV": 16, "ACTV": 18, "POOL": 5, "FC": 3}),
        ("vgg416", {"CONV": 416, "ACTV": 418, "POOL": 5, "FC": 3}),
        # 3 CONV and 3 BN layers in each of 3 + 4 + 6 + 3 blocks, one of each in the stem and in 4 projections. ACTV: 3
        # in a block, the last behind its addition, and one in the stem.
        ("resnet50", {"CONV": 53, "BN": 53, "ACTV": 49, "POOL": 2, "FC": 1, "ADD": 16}),
        # CONV, BN and ACTV: stem 5; modules 3 x 7, 4, 4 x 10, 6, 2 x 9. Pooling: stem 2, one in each of 11 modules, and
        # the average. Joins: one in each module and two more in each of the last two.
        ("inception_v3", {"CONV": 94, "BN": 94, "ACTV": 94, "POOL": 14, "CONCAT": 15, "FC": 1}),
        ("lenet", {"CONV": 2, "ACTV": 1, "POOL": 2, "FC": 2}),
        # No ACTV behind ip1.
        ("cifar10_quick", {"CONV": 3, "ACTV": 3, "POOL": 3, "FC": 2}),
        ("tiny_linear", {"CONV": 5, "ACTV": 5, "POOL": 3, "FC": 1}),
        # Pooling: 2 between the parts, 1 in module b, 1 average.
        ("tiny_forked", {"CONV": 6, "ACTV": 6, "POOL": 4, "CONCAT": 2, "FC": 1}),
        # 2 CONV layers in each of two blocks, one in the stem and a projection. ACTV: 2 in a block, one in the stem.
        ("tiny_residual", {"CONV": 6, "BN": 6, "ACTV": 5, "POOL": 2, "FC": 1, "ADD": 2}),
        # The paper's AlexNet, adaptive pooling, and two dropouts.
        ("alexnet_torchvision", {"CONV": 5, "ACTV": 7, "POOL": 4, "FC": 3, "DROPOUT": 2}),
        ("vgg11_torchvision", {"CONV": 8, "ACTV": 10, "POOL": 6, "FC": 3, "DROPOUT": 2}),
        ("vgg19_torchvision", {"CONV": 16, "ACTV": 18, "POOL": 6, "FC": 3, "DROPOUT": 2}),
        # 3 CONV and BN layers in each of 17 blocks, but 2 in the first, one of each in stem and end; ReLU6 behind all
        # but the last of a block. Blocks of stride 1 whose width stays: 1 + 2 + 3 + 2 + 2 (Table 2).
        ("mobilenet_v2", {"CONV": 52, "BN": 52, "ACTV": 35, "ADD": 10, "POOL": 1, "FC": 1, "DROPOUT": 1}),
        # 2 CONV, BN and ACTV in each of 6 + 12 + 24 + 16 layers, one in the stem and in each of 3 transitions, and BN
        # and ACTV in the end. A join in each layer and behind each block. Poolings: stem, transitions, end (Table 1).
        ("densenet121", {"CONV": 120, "BN": 121, "ACTV": 121, "CONCAT": 62, "POOL": 5, "FC": 1}),
        # 9 pairs of CONV, BN and ACTV, 4 transposed, and the one that classifies pixels.
        ("unet", {"CONV": 23, "BN": 18, "ACTV": 18, "CONCAT": 4, "POOL": 4}),
        # In each of 12 blocks 2 LN, 4 products, 2 sums; before them patches, token and positions, behind LN and head.
        ("vit_b_16", {"CONV": 1, "CONCAT": 1, "ADD": 25, "LN": 25, "FC": 49, "ATTENTION": 12, "ACTV": 12}),
    ],
)
def test_layers_by_kind(name: str, kinds: dict[str, int]) -> None:
    assert Counter(layer.kind.value for layer in build_network(name).layers) == {**kinds, "LOSS": 1}


@pytest.mark.parametrize(
    ("name", "batch_size", "expected"),
    [
        # Input 150,528. CONV: 64 x 55^2, 192 x 27^2, 384 x 13^2, 256 x 13^2 twice: 484,992. POOL: 64 x 27^2, 192 x 13^2
        # and 256 x 6^2: 88,320. FC and loss: 10,192.
        ("alexnet", 1, 734_032 * 4),
        # Input 160,083. CONV: 96 x 56^2, 256 x 24^2, 512 x 12^2, 1,024 x 12^2 twice: 817,152. POOL: 96 x 28^2,
        # 256 x 12^2 and 1,024 x 6^2: 148,992. FC 3,072 + 4,096 + 1,000 and the loss 1,000.
        ("overfeat", 1, 1_135_395 * 4),
        # Input 150,528. CONV: (1, 1, 2, 2, 2) of 3,211,264, 1,605,632, 802,816, 401,408, 100,352: 7,426,048.
        # POOL: 802,816, 401,408, 200,704, 100,352, 25,088: 1,530,368. FC and loss: 4,096 x 2 + 1,000 x 2: 10,192.
        ("vgg_a_8conv", 64, 9_117_136 * 64 * 4),
        # CONV (2, 2, 3, 3, 3): 13,547,520.
        ("vgg_d_13conv", 64, 15_238_608 * 64 * 4),
        # CONV (2, 2, 4, 4, 4): 14,852,096.
        ("vgg16", 256, 16_543_184 * 256 * 4),
        ("vgg116", 32, (16_543_184 + ELEMENTS_PER_STEP) * 32 * 4),
        ("vgg216", 32, (16_543_184 + 2 * ELEMENTS_PER_STEP) * 32 * 4),
        ("vgg316", 32, (16_543_184 + 3 * ELEMENTS_PER_STEP) * 32 * 4),
        ("vgg416", 32, (16_543_184 + 4 * ELEMENTS_PER_STEP) * 32 * 4),
        # Stem: input 150,528, conv1 64 x 112^2 = 802,816, pool1 and conv2_reduce 64 x 56^2 = 200,704 each, conv2
        # 192 x 56^2 = 602,112, pool2 192 x 28^2 = 150,528: 2,107,392.
        # A module holds its six CONV maps, its pool (as wide as its input) and its join. Channels: 3a 816, 3b 1,376
        # at 28^2; 4a 1,616, 4b 1,672, 4c 1,688, 4d 1,744, 4e 2,384 at 14^2; 5a 2,688, 5b 3,120 at 7^2:
        # 2,192 x 784 + 9,104 x 196 + 5,808 x 49 = 1,718,528 + 1,784,384 + 284,592.
        # Between them pool3 480 x 14^2 = 94,080, pool4 832 x 7^2 = 40,768; behind them 1,024, 1,000 and 1,000.
        ("googlenet", 128, 6_032_768 * 128 * 4),
    ],
)
def test_bytes_of_all_maps(name: str, batch_size: int, expected: int) -> None:
    """Elements of one image, times the batch, times 4 B; the sums stand beside each case. A rectifier has no map."""
    workload = Workload(build_network(name), batch_size)

    assert sum(workload.map_bytes(each.index) for each in workload.graph.maps) == expected


def test_the_classifier_begins_with_the_first_fc_layer() -> None:
    """Or the dropout that it reads; U-Net and ViT have their own test."""
    for name in NETWORKS:
        layers = build_network(name).layers
        if layers[0].in_shapes[0].steps > 1 or name in ("unet", "vit_b_16"):
            continue
        first = next(layer.index for layer in layers if layer.kind is LayerKind.FC)
        if layers[first - 1].kind is LayerKind.DROPOUT:
            first -= 1

        assert [layer.stage for layer in layers] == [
            Stage.FEATURES if layer.index < first else Stage.CLASSIFIER for layer in layers
        ]


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("AlexNet", "alexnet"),
        ("VGG16", "vgg16"),
        ("torchvision:vgg16", "vgg16_torchvision"),
        ("ResNet-101", "resnet101"),
    ],
)
def test_a_name_is_known_however_it_is_written(typed: str, name: str) -> None:
    assert build_network(typed).name == name


@pytest.mark.parametrize(
    ("typed", "offered"), [("vgg", "vgg16"), ("vgg19", "vgg19_torchvision"), ("googlnet", "googlenet")]
)
def test_an_unknown_name_is_refused_with_the_nearest_one_and_all_others(typed: str, offered: str) -> None:
    said, listed = refusal(InputError, build_network, typed), ", ".join([*NETWORKS, "resnetN", "wrn_D_W"])
    assert said == f"{typed!r} is not a network; did you mean {offered!r}? ({listed})"
