"""The models that a script trains: when each is planned, and what of the memory it leaves to the others."""

from collections.abc import Collection, Iterable
from typing import Final

from torch import nn

from calibration.apply.model_discovery import has_untrained, optimizers_of
from calibration.apply.trained_model import Applied, Trained

_PATIENCE: Final = 16
"""Calls of models that are known after which those that have an optimizer and were not trained yet run as they are."""


class Models:
    """Those that were found; one is outer where others have their steps between its forward and its backward."""

    def __init__(self) -> None:
        self._known: dict[int, Trained] = {}
        self._outer: set[int] = set()
        self._waited = 0

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, model: nn.Module) -> bool:
        return id(model) in self._known

    @property
    def identities(self) -> Collection[int]:
        """Those of the models."""
        return self._known.keys()

    @property
    def applied(self) -> list[Applied]:
        """The plans that were made."""
        return [each.applied for each in self._known.values() if each.applied is not None]

    @property
    def is_settled(self) -> bool:
        """Whether nothing more is waited for."""
        return len(self.applied) == len(self) or (bool(self.applied) and self._waited >= _PATIENCE)

    def add(self, trained: Trained) -> None:
        """Add one that was found."""
        self._known[id(trained.model)] = trained

    def forget(self, trained: Trained) -> None:
        """Forget one, which is to be found anew."""
        del self._known[id(trained.model)]

    def wait(self) -> None:
        """Note that a call of a model was left as it is."""
        self._waited += 1

    def note_outer(self, models: Iterable[nn.Module]) -> None:
        """Note models whose backward is yet to come while another has its own."""
        self._outer.update(map(id, models))

    def is_outer(self, trained: Trained) -> bool:
        """Whether others have their steps between forward and backward of a model."""
        return id(trained.model) in self._outer

    def others(self, trained: Trained) -> list[Trained]:
        """Return all but one."""
        return [each for each in self._known.values() if each is not trained]

    def is_time(self, trained: Trained, *, is_pending: bool) -> bool:
        """Whether a model may be planned: all are known, and so is what those take that run between.

        Args:
            trained: the model.
            is_pending: whether something was called whose backward is yet to come.
        """
        if self._waited >= _PATIENCE:
            return True
        if not self.applied and (is_pending or has_untrained([each.model for each in self._known.values()])):
            return False
        return not self.is_outer(trained) or all(
            each.applied is not None or self.is_outer(each) for each in self._known.values()
        )

    def part_of_others(self, trained: Trained) -> float:
        """Return which part of the memory outer models may keep while another has its step, by what they saved."""
        if self.is_outer(trained):
            return 0.0
        kept = sum(each.saved_bytes for each in self._known.values() if self.is_outer(each))
        return kept / max(1, kept + trained.saved_bytes)

    def taken_between(self, trained: Trained) -> int:
        """Return what steps take at most between forward and backward of a model."""
        planned = (each.applied for each in self.others(trained) if each.applied is not None)
        return max((each.own_bytes for each in planned), default=0) if self.is_outer(trained) else 0


def learn_apart(models: list[nn.Module]) -> bool:
    """Whether models are several, each once, and each has an optimizer that has parameters of no other."""
    known = {id(each): {id(one) for one in optimizers_of(each)} for each in models}
    if len(known) < len(models) or len(known) < 2:
        return False
    optimizers = [each for found in known.values() for each in found]
    return all(known.values()) and len(optimizers) == len(set(optimizers))
