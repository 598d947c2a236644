"""Twins have the parameters of their networks, and behave without storage as with it."""

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


@pytest.mark.parametrize(
    ("network", "parameters", "saved_bytes"),
    [
        ("resnet18", 11_689_512, 177_509_188),
        ("resnet34", 21_797_672, 257_820_484),
        ("resnet50", 25_557_032, 687_520_580),
        ("resnet101", 44_549_160, 1_015_278_404),
        ("resnet152", 60_192_808, 1_420_081_988),
    ],
)
def test_twins_save_what_torchvision_s_modules_do(network: str, parameters: int, saved_bytes: int) -> None:
    """Counted over torchvision 0.28's modules in training, with a batch of 8, parameters and buffers aside."""
    twin = Twin(build_network(network), 8)

    assert sum(parameter.numel() for parameter in twin.parameters) == parameters
    assert twin.saved_bytes() == saved_bytes


def test_the_twin_of_resnet50_holds_what_torchvision_s_module_does() -> None:
    """But for the number of batches that each of its 53 batch normalizations has seen, an int64."""
    live = Twin(build_network("resnet50"), 8)

    assert live.live_bytes(gradients_kept=False).peak.live_bytes == 838_069_808 - 53 * 8
    assert live.live_bytes(gradients_kept=True).peak.live_bytes == 900_451_280 - 53 * 8
