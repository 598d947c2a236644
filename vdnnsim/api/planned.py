"""A plan that was made for a model: what it costs by prediction, and what applies it."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vdnnsim.api.step_report import Telling, described
from vdnnsim.errors import PolicyError

if TYPE_CHECKING:
    from calibration.apply.loop import Loop
    from calibration.apply.step_hooks import StepLog
    from vdnnsim.analysis.results import PolicyResult
    from vdnnsim.api.planning import Asked


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan for a model, and what it costs by prediction.

    Attributes:
        predicted: what came of the plan in the simulator, with its trace.
        loop: what applies it.
    """

    predicted: "PolicyResult"
    loop: "Loop"
    _asked: "Asked"
    _telling: Telling

    def apply(self, model: Any) -> "AbstractContextManager[StepLog]":  # noqa: ANN401  # a torch.nn.Module
        """Return the context in which a step of the model runs by the plan: its forward, its loss and its backward.

        A step that is not as it was captured runs as without a plan from there on, with one warning that says where.
        After the third step a line on standard error holds its time and its peak of memory against the plan's; where
        one is off by more than 5 %, the next says what was.
        """
        return self._telling.apply(model)

    def trace(self, folder: str | Path = "reports/live") -> None:
        """Have the next step timed, and write what happened in it beside what was predicted.

        `trace.json`, for https://ui.perfetto.dev, has both; `snapshot_predicted.pickle` and, on a GPU,
        `snapshot_happened.pickle` are for https://pytorch.org/memory_viz.

        Args:
            folder: where to write; an earlier step of a loop there is replaced.

        Raises:
            OutputError: when the step has ended, the folder cannot be written, or has files of somebody else's.
        """
        self._telling.record(Path(folder))

    @property
    def has_drifted(self) -> bool:
        """Whether the latest step whose parts were timed was off the plan by more than 5 % in time or memory."""
        return self._telling.has_drifted

    def refit(self) -> "Planned":
        """Plan again with what this loop measured: the times of its operations and copies, and what memory it took.

        This plan gives its pinned memory back until it is applied again.

        Raises:
            PolicyError: no step was timed yet, or no plan fits in what memory is left.
        """
        step = self._telling.recorded
        if step is None and not self.is_full_of_gaps:
            raise PolicyError("refit: no step was timed yet, expected one after plan.trace()")
        self.loop.rest()
        asked = self._asked if step is None else self._asked.measured(step, self.predicted)
        return asked.with_gaps(self.loop.room.beyond_bytes if self.is_full_of_gaps else 0).planned()

    @property
    def is_full_of_gaps(self) -> bool:
        """Whether steps as planned made PyTorch reserve more than it may, for gaps between what it has allocated."""
        return self.loop.room.is_full_of_gaps

    def stream(self, optimizer: Any, model: Any) -> None:  # noqa: ANN401  # of torch
        """Keep an optimizer's states on the host, where the plan has them there (`optimal(offload_optimizer=true)`).

        They come for the update of their parameter and leave after it: its `step` runs once for each parameter, with
        the same bits.

        Args:
            optimizer: which the plan was made for, as a `torch.optim.Optimizer`; its `step` is replaced, so make what
                wraps it, as a scheduler, afterwards.
            model: whose parameters it updates.

        Raises:
            ExecutionRefused: the plan keeps states on the GPU, or was made for another optimizer.
        """
        self.loop.stream(optimizer, model)

    def __str__(self) -> str:
        return described(self.predicted, self.loop.agenda, self._asked.beside_bytes)
