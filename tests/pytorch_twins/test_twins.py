"""Twins are what they stand for: they have our parameters, and do without storage what PyTorch does with it."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from tests.pytorch_twins import kernels
from tests.pytorch_twins.twin import Twin
from vdnnsim.dnn.networks import NETWORKS, build_network

SMALL = ["tiny_linear", "tiny_forked", "tiny_residual", "lenet", "cifar10_quick", "wrn_8_1"]


@pytest.mark.parametrize("network", [*NETWORKS, "resnet18", "resnet20", "wrn_16_4"])
def test_every_network_has_a_twin_with_its_parameters(network: str) -> None:
    graph = build_network(network)
    twin = Twin(graph, batch_size=1)

    assert sum(parameter.numel() for parameter in twin.parameters) == graph.parameters
    assert twin.loss().shape == ()


@pytest.mark.parametrize("network", SMALL)
@pytest.mark.parametrize("gradients_kept", [False, True])
def test_nothing_depends_on_storage(network: str, gradients_kept: bool) -> None:  # noqa: FBT001 - as pytest gives it
    """Saved bytes, and what is alive after each operator, are those of tensors on the CPU."""
    graph = build_network(network)
    without, real = Twin(graph, 2), Twin(graph, 2, torch.device("cpu"))

    assert without.saved_bytes() == real.saved_bytes()
    assert (
        without.live_bytes(gradients_kept=gradients_kept).moments
        == real.live_bytes(gradients_kept=gradients_kept).moments
    )


@pytest.mark.parametrize("network", SMALL)
def test_nothing_depends_on_storage_under_autocast(network: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fake tensors save what those on the CPU do, whose batch normalization is PyTorch's."""
    graph = build_network(network)
    fake = Twin(graph, 2, FakeTensorMode(), amp=True).saved_bytes()

    def normalize(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        mean, variance, gamma, beta = weights
        return functional.batch_norm(x, mean, variance, gamma, beta, training=True)

    monkeypatch.setattr(kernels.HalfBatchNorm, "apply", normalize)
    assert Twin(graph, 2, torch.device("cpu"), amp=True).saved_bytes() == fake


def test_the_twin_of_resnet50_saves_what_torchvision_s_does() -> None:
    """Counted over torchvision's with a batch of 64."""
    assert Twin(build_network("resnet50"), 64).saved_bytes() == 5_498_677_252
