"""The loss of a captured model: its own, or an assumed one with a note."""

from collections.abc import Iterable, Mapping
from math import prod
from typing import Any, Final

import torch
from torch.nn.functional import cross_entropy
from torch.utils._pytree import tree_leaves

from vdnnsim.errors import CaptureError

_FEWEST_CLASSES: Final = 2


class AssumedLoss:
    """A loss from the output of a model.

    Its own: `.loss` or `["loss"]` of the output, or a scalar. Else cross entropy, where the shape is that of logits, or
    the mean of squares: of the first floating tensor of a plain tuple, or the sum over all of another output. Labels
    are made once for each micro-batch, and are given in later iterations, as batches are.
    """

    def __init__(self, name: str, accumulate: int = 1) -> None:
        self._name = name
        self._accumulate = accumulate
        self._calls = 0
        self._labels: dict[tuple[int, int], torch.Tensor] = {}
        self._said: dict[str, None] = {}
        self.text = ""
        """The loss in Python, `{}` being the call of the model; empty where the mean of squares is taken for it."""
        self.rows: tuple[int, ...] = ()
        """Sizes of its labels; none where the model has its own loss."""

    def prepare(self, known: "AssumedLoss", known_batch: int, batch_size: int) -> bool:
        """Make labels for a batch as those of another size; return whether these say which."""
        made = known._labels  # noqa: SLF001 - of this class
        if known.rows and (known.rows[0] != known_batch or len(made) > 1):
            return False
        for key, labels in made.items():
            self._labels[key] = labels.new_zeros(batch_size * prod(known.rows[1:]))
        return bool(known.text)

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._said)

    def labels(self) -> Iterable[torch.Tensor]:
        return self._labels.values()

    def __call__(self, output: Any) -> torch.Tensor:  # noqa: ANN401 - whatever a model returns
        """Return the loss, or raise CaptureError where the output has no tensor of floats."""
        batch = self._calls % self._accumulate
        self._calls += 1
        own, where = _own_loss(output)
        if own is not None:
            self.text = f"{{}}{where}"
            return own
        leaves = tree_leaves(opened(output))
        tensors = [each for each in leaves if isinstance(each, torch.Tensor) and each.is_floating_point()]
        if not tensors:
            raise CaptureError(
                f"{self._name}: the model returns {_described(output, leaves)}, expected a tensor of floats, a tuple "
                "or a dictionary of such, or an object whose `loss` is one"
            )
        trained = [each for each in tensors if each.requires_grad] or tensors
        # Behind it are states, as `h_n` of an LSTM; of a named tuple, heads that are trained as well.
        is_first = type(output) is tuple and len(trained) > 1
        trained = trained[:1] if is_first else trained
        what = "the first tensor of its output" if is_first else "its output"
        losses = [self._of_tensor(each, batch, number, what) for number, each in enumerate(trained)]
        path = _path_to(trained[0], output)
        if self._labels and len(trained) == 1 and path is not None:
            self.rows = tuple(trained[0].shape[:-1])
            flat = "" if len(self.rows) == 1 else ".flatten(0, -2)"
            self.text = f"cross_entropy({{}}{path}{flat}, labels{flat and '.flatten()'})"
        return losses[0] if len(losses) == 1 else torch.stack([each.float() for each in losses]).sum()

    def _of_tensor(self, tensor: torch.Tensor, batch: int, number: int, what: str) -> torch.Tensor:
        shape = "x".join(map(str, tensor.shape))
        # N x C or N x T x V.
        if tensor.dim() not in (2, 3) or tensor.shape[-1] < _FEWEST_CLASSES:
            self._said[f"the model returns no loss, so the mean square of {what}, {shape}, is taken for it"] = None
            return tensor.square().mean()
        self._said[f"the model returns no loss, so cross entropy of {what}, {shape}, is taken for it"] = None
        rows = tensor.flatten(0, -2)
        key = (batch, number)
        if key not in self._labels or len(self._labels[key]) != len(rows):
            self._labels[key] = torch.zeros(len(rows), dtype=torch.int64, device=tensor.device)
        return cross_entropy(rows, self._labels[key])


def _own_loss(output: Any) -> tuple[torch.Tensor | None, str]:  # noqa: ANN401
    """Return the loss of an output, and where in it that is, in Python."""
    if isinstance(output, Mapping):
        found, path = output.get("loss"), '["loss"]'
    else:
        found, path = getattr(output, "loss", output), ".loss" if hasattr(output, "loss") else ""
    if isinstance(found, tuple | list) and found:
        found, path = found[0], f"{path}[0]"  # a loss before metrics
    if isinstance(found, torch.Tensor) and found.numel() == 1 and found.is_floating_point():
        return found, path
    return None, ""


def _path_to(tensor: torch.Tensor, output: Any) -> str | None:  # noqa: ANN401
    """Return where in an output a tensor is, in Python; None where it is further within."""
    if tensor is output:
        return ""
    if isinstance(output, tuple | list):
        return next((f"[{at}]" for at, each in enumerate(output) if each is tensor), None)
    form = '["{}"]' if isinstance(output, Mapping) else ".{}"
    members = opened(output)
    parts = members.items() if isinstance(members, dict) else ()
    return next((form.format(name) for name, each in parts if each is tensor), None)


def opened(output: Any) -> Any:  # noqa: ANN401 - as above
    """Return mappings and dataclasses as dictionaries, which PyTorch's trees open."""
    if isinstance(output, Mapping):
        return dict(output)
    return dict(vars(output)) if hasattr(output, "__dataclass_fields__") else output


def _described(output: object, leaves: list[Any]) -> str:
    integers = [each for each in leaves if isinstance(each, torch.Tensor)]
    if integers:
        return f"{len(integers)} {'tensor' if len(integers) == 1 else 'tensors'} of {integers[0].dtype}"
    return "nothing" if output is None else f"a {type(output).__name__} without a tensor"
