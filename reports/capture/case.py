"""A model of the zoo, small enough to be run on a CPU, and the program that is captured of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from calibration.capture.program import Arguments, Program
from vdnnsim.dnn.workload import Mode
from vdnnsim.units import Precision


def own_loss(output: Any) -> torch.Tensor:  # noqa: ANN401 - whatever a model returns
    """Return the loss that a model returns, or the mean squares of its outputs with gradients."""
    found = getattr(output, "loss", None)
    if isinstance(found, torch.Tensor) and found.dim() == 0:
        return found
    leaves = tree_leaves(tuple(output.values()) if isinstance(output, Mapping) else output)
    tensors = [each for each in leaves if isinstance(each, torch.Tensor) and each.requires_grad]
    return torch.stack([each.float().square().mean() for each in tensors]).sum()


@dataclass(frozen=True)
class Case:
    """A model of a package, or our `own`.

    Without `onednn` real kernels are not oneDNN's, whose recurrent layers have an unknown workspace.
    """

    name: str
    family: str
    make_model: Callable[[], nn.Module]
    make_inputs: Callable[[], Arguments]
    loss: Callable[[Any], torch.Tensor] = own_loss
    optimizer: str = "adamw"
    precision: Precision = Precision.FLOAT32
    accumulate: int = 1
    onednn: bool = True

    @property
    def program(self) -> Program:
        """The program that is captured."""
        packages = ["torch"] if self.family == "own" else ["torch", self.family]
        return Program(
            name=f"{self.family}:{self.name}",
            make_model=self.make_model,
            make_inputs=self.make_inputs,
            loss=self.loss,
            optimizer=self.optimizer,
            mode=Mode.TRAINING,
            precision=self.precision,
            batch_size=2,
            accumulate=self.accumulate,
            versions=", ".join(f"{each} {version(each).partition('+')[0]}" for each in packages),
        )


def config(**values: Any) -> dict[str, Any]:  # noqa: ANN401 - of a configuration
    """Return keyword arguments as a dictionary."""
    return values


def images(side: int, channels: int = 3, batch: int = 2) -> Callable[[], Arguments]:
    """Return what makes a batch of square images."""
    return lambda: ((torch.randn(batch, channels, side, side),), {})


def tokens(length: int) -> Callable[[], Arguments]:
    """Return what makes two sequences of ids, with themselves as labels."""

    def make() -> Arguments:
        ids = torch.randint(3, 1000, (2, length))
        return (), {"input_ids": ids, "labels": ids.clone()}

    return make
