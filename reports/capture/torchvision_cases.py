"""Classifiers, segmentation, video, optical flow and detection of torchvision."""

from collections.abc import Iterator
from typing import Any

import torch
import torchvision

from calibration.capture.program import Arguments
from reports.capture.case import Case, images

_CLASSIFIERS = {
    64: (
        "resnet18 resnet34 resnet50 resnet101 resnext50_32x4d wide_resnet50_2 densenet121 densenet169 mobilenet_v2 "
        "mobilenet_v3_small mobilenet_v3_large mnasnet0_5 mnasnet1_0 shufflenet_v2_x0_5 shufflenet_v2_x1_0 "
        "squeezenet1_0 squeezenet1_1 efficientnet_b0 efficientnet_b1 efficientnet_v2_s regnet_x_400mf "
        "regnet_y_400mf regnet_y_800mf convnext_tiny alexnet vgg11 swin_t swin_v2_t"
    ),
    128: "googlenet",
    224: "maxvit_t",
    299: "inception_v3",
}
_SEGMENTATION = "fcn_resnet50 deeplabv3_resnet50 deeplabv3_mobilenet_v3_large lraspp_mobilenet_v3_large"
_VIDEO = "r3d_18 mc3_18 r2plus1d_18 swin3d_t"
_DETECTION = "fasterrcnn_mobilenet_v3_large_320_fpn ssdlite320_mobilenet_v3_large retinanet_resnet50_fpn"


def cases() -> Iterator[Case]:
    for side, names in _CLASSIFIERS.items():
        for name in names.split():
            yield _case(name, images(side))
    for name in ("vit_b_16", "vit_b_32"):
        yield _case(name, images(64), image_size=64)
    for name in _SEGMENTATION.split():
        yield _case(name, images(64), weights_backbone=None)
    for name in _VIDEO.split():
        yield _case(name, lambda: ((torch.randn(2, 3, 8, 32, 32),), {}))
    yield _case("raft_small", lambda: ((torch.randn(2, 3, 128, 128), torch.randn(2, 3, 128, 128)), {}))
    for name in _DETECTION.split():
        yield _case(name, _boxed, weights_backbone=None)


def _case(name: str, make_inputs: Any, **arguments: Any) -> Case:  # noqa: ANN401 - of the model
    make = lambda: torchvision.models.get_model(name, weights=None, **arguments)  # noqa: E731
    return Case(name, "torchvision", make, make_inputs, optimizer="momentum")


def _boxed() -> Arguments:
    boxes = torch.tensor([[10.0, 10.0, 60.0, 60.0]])
    targets = [{"boxes": boxes.clone(), "labels": torch.tensor([1])} for _ in range(2)]
    return ([torch.rand(3, 96, 96) for _ in range(2)], targets), {}
