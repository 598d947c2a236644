"""Layers of networks that are only simulated are refused by name, in one line."""

import pytest

from calibration.devices.interface import OutOfDeviceMemory
from calibration.kernels.pytorch import PyTorchLibrary
from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import ExecutionRefused


@pytest.mark.parametrize(
    ("network", "layer", "message"),
    [
        ("caffenet", "norm1", "norm1: .*lrn window 5 of 96x27x27$"),
        ("caffenet", "conv2", "conv2: .*conv 256 5x5 .* groups 2 of 96x27x27$"),
        ("caffenet", "drop6", "drop6: .*dropout .* of 4096x1x1$"),
        ("lstm_cnn", "conv1", "conv1: .*conv 96 7x7 .* of 16x3x227x227$"),
        ("llama_1b", "layers0.ffn.product", "multiply of 2048x5632x1x1 and 2048x5632x1x1$"),
    ],
)
def test_a_layer_without_a_kernel_is_refused_by_name(network: str, layer: str, message: str) -> None:
    workload = Workload(build_network(network), 1)
    (refused,) = [each for each in workload.graph.layers if each.name == layer]
    for phase in refused.training_phases:
        with pytest.raises(ExecutionRefused, match=message):
            PyTorchLibrary("cpu").kernels(workload, refused, phase)


def test_operands_too_large_for_any_machine_are_out_of_memory() -> None:
    """An input of 10^12 images has 12 petabytes, more than a process can address."""
    workload = Workload(build_network("tiny_linear"), 10**12)
    with pytest.raises(OutOfDeviceMemory, match="lacks memory for forward"):
        PyTorchLibrary("cpu").kernels(workload, workload.graph.layers[0], Phase.FORWARD)
