"""A captured model on another card for which the same is captured: what one of them needs is captured once for both."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from vdnnsim.dnn.captured_model import CapturedModel, Line
from vdnnsim.dnn.captured_sizes import Difference
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.training_loops import Loop

Capability: TypeAlias = tuple[int, int]
Alike: TypeAlias = Callable[[CapturedStep, Capability, Capability], bool]
"""Whether a step that was captured for the first card would be captured the same for the second."""


class ModelsByCard:
    """A model for each card, captured anew where that is another."""

    def __init__(
        self, first: CapturedModel, capability: Capability, capture: Callable[[Capability], CapturedModel], alike: Alike
    ) -> None:
        """Begin with a model that was captured for a compute capability."""
        self._capture, self._alike = capture, alike
        self._captured = {capability: first}
        self._known = {capability: first}

    def of(self, capability: Capability) -> CapturedModel:
        """Return the model for a card, always the same.

        Raises:
            CaptureError: capturing it failed.
        """
        if capability not in self._known:
            known = self._captured.items()
            same = next((each for there, each in known if self._alike(each.base, there, capability)), None)
            if same is None:
                self._captured[capability] = self._capture(capability)
            self._known[capability] = CapturedOnCard(same, capability) if same else self._captured[capability]
        return self._known[capability]


class CapturedOnCard(CapturedModel):
    """A model whose steps are those of another, but for the compute capability for which they were captured."""

    def __init__(self, original: CapturedModel, compute_capability: Capability) -> None:
        """Take a model whose attention and libraries choose the same on a card of that capability."""
        self._there = "cuda {}.{}".format(*compute_capability)
        self._capability = compute_capability
        self._original = original.original
        others = [CapturedOnCard(each, compute_capability) for each in original.others]
        super().__init__(self._on(original.base), sources=original.sources, rounds=original.rounds, others=others)

    @property
    def original(self) -> CapturedModel:
        return self._original

    def workload(self, batch_size: int, rounds: int | None = None) -> CapturedWorkload:
        """Return that of the other model, whose step in the layer view it shares; it raises what that does."""
        key = batch_size, rounds or self.rounds
        if key not in self._workloads:
            found = self._original.workload(*key)
            ranks = [dataclasses.replace(each, captured=self._on(each.captured)) for each in (found, *found.pipeline)]
            self._workloads[key] = dataclasses.replace(ranks[0], pipeline=tuple(ranks[1:]))
        return self._workloads[key]

    def on_card(self, server: Any) -> CapturedModel:  # noqa: ANN401
        return self._original.on_card(server)

    @property
    def can_be_of_any_batch(self) -> bool:
        return self._original.can_be_of_any_batch

    @property
    def can_be_of_any_length(self) -> bool:
        return self._original.can_be_of_any_length

    @property
    def can_be_in_any_loop(self) -> bool:
        return self._original.can_be_in_any_loop

    def in_loop(self, loop: Loop, batch_size: int | None = None) -> CapturedModel | None:
        key = loop, batch_size or self.base.part_size
        if key not in self._loops:
            found = self._original.in_loop(*key)
            self._loops[key] = None if found is None else CapturedOnCard(found, self._capability)
        return self._loops[key]

    def at_lengths(self, lengths: Sequence[int]) -> tuple[CapturedModel, ...]:
        return tuple(CapturedOnCard(each, self._capability) for each in self._original.at_lengths(lengths))

    @property
    def compares_samples(self) -> bool:
        return self._original.compares_samples

    @property
    def batches(self) -> str:
        return self._original.batches

    def find_line(self) -> Line | Difference:
        return self._original.find_line()

    def _on(self, step: CapturedStep) -> CapturedStep:
        return replace(step, device=self._there)
