"""Batch normalization with the statistics of its batch, by aten's own kernels on every device.

On CUDA PyTorch would choose cuDNN's, which keep a reserve between forward and backward that no plan has; with cuDNN
switched off it computes the same as here. Running statistics, which are for inference, are not kept.

aten sums a dY that is a slice of a larger map in another order than a contiguous one. Autograd passes such a dY where
only a concatenation reads the normalized map, without a rectifier between; a plan never does. Only there gradients
differ from plain PyTorch's, by rounding.
"""

import torch

from calibration.kernels.interface import Kernel, KernelTensors, Site, deposit, given
from vdnnsim.dnn.layers import Phase

EPSILON = 1e-5
"""Added to the variance; the default of `torch.nn.BatchNorm2d`."""

_TRAINING = True
_MOMENTUM = 0.1
_NO_RUNNING_STATISTICS = (None, None)


def batch_normalization_kernels(site: Site, phase: Phase) -> tuple[Kernel, ...]:
    """Return the one kernel for a phase of a batch normalization; all of backward is one phase."""

    def forward(tensors: KernelTensors, _: list[torch.Tensor]) -> None:
        gamma, beta = site.weights(tensors.weights)
        mean, inverse_deviation = given(tensors.statistics).chunk(2)
        if _statistics_dtype(site) is torch.float32:
            _normalize(tensors, gamma, beta, mean, inverse_deviation)
            return
        narrow = given(tensors.statistics).to(site.dtype)
        _normalize(tensors, gamma, beta, *narrow.chunk(2))
        given(tensors.statistics).copy_(narrow)

    def backward(tensors: KernelTensors, _: list[torch.Tensor]) -> None:
        gamma, _beta = site.weights(tensors.weights)
        mean, inverse_deviation = given(tensors.statistics).to(_statistics_dtype(site)).chunk(2)
        dx = tensors.input_gradients[0]
        results = torch.ops.aten.native_batch_norm_backward(
            given(tensors.output_gradient),
            tensors.inputs[0],
            gamma,
            *_NO_RUNNING_STATISTICS,
            mean,
            inverse_deviation,
            _TRAINING,
            EPSILON,
            (dx is not None, True, True),
        )
        if dx is not None:
            deposit(results[0], dx, added=tensors.accumulates[0])
        gamma_gradient, beta_gradient = site.weights(tensors.weight_gradient)
        gamma_gradient.copy_(results[1])
        given(beta_gradient).copy_(results[2])

    return site.only(forward if phase is Phase.FORWARD else backward, allocates=True)


def _statistics_dtype(site: Site) -> torch.dtype:
    """The type of aten's statistics: on the CPU that of X, where gamma has it too, else float32.

    A plan keeps float32, which holds the narrower types exactly.
    """
    return site.dtype if site.device_type == "cpu" else torch.float32


def _normalize(
    tensors: KernelTensors,
    gamma: torch.Tensor,
    beta: torch.Tensor | None,
    mean: torch.Tensor,
    inverse_deviation: torch.Tensor,
) -> None:
    torch.ops.aten.native_batch_norm.out(
        tensors.inputs[0],
        gamma,
        beta,
        *_NO_RUNNING_STATISTICS,
        _TRAINING,
        _MOMENTUM,
        EPSILON,
        out=given(tensors.output),
        save_mean=mean,
        save_invstd=inverse_deviation,
    )
