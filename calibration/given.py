"""What is there when an iteration begins: the content of given buffers, kept on the host to be filled in again."""

import torch

from calibration.kernels.initial import fill_input, fill_state, fill_weights
from calibration.kernels.tensors import Part, shaped_view
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import ExecutionRefused
from vdnnsim.plan.training_plan import BufferKind, TrainingPlan


class GivenContent:
    """The content of the given buffers of every plan of a workload, drawn once."""

    def __init__(self, workload: Workload, seed: int, *, channels_last: bool) -> None:
        self._workload = workload
        self._channels_last = channels_last
        self._seed = seed
        self._drawn: dict[tuple[BufferKind, int, int], torch.Tensor] = {}

    def of(self, plan: TrainingPlan, buffer: int, form: Part) -> torch.Tensor:
        """Return the content of a given buffer, as flat elements on the host.

        Raises:
            ExecutionRefused: there is none for it.
        """
        given = plan.buffers[buffer]
        assert given.of is not None, "a buffer with a form says what it belongs to"
        number = sum(each.kind is given.kind and each.of == given.of for each in plan.buffers[:buffer])
        key = (given.kind, given.of, number)
        if key not in self._drawn:
            content = torch.empty(torch.Size(form.shape).numel(), dtype=form.dtype)
            self._draw(plan, buffer, number, content, form)
            self._drawn[key] = content
        return self._drawn[key]

    def _draw(self, plan: TrainingPlan, buffer: int, number: int, content: torch.Tensor, form: Part) -> None:
        given = plan.buffers[buffer]
        assert given.of is not None, "a buffer with a form says what it belongs to"
        match given.kind:
            case BufferKind.FEATURE_MAP if self._workload.graph.maps[given.of].producer is None:
                fill_input(shaped_view(content, form.shape, channels_last=form.channels_last), self._seed)
            case BufferKind.WEIGHTS:
                layer = self._workload.graph.layers[given.of]
                fill_weights(layer, content, self._seed, channels_last=self._channels_last)
            case BufferKind.OPTIMIZER_STATE:
                fill_state(self._workload.graph.layers[given.of], number, content, self._seed)
            case _:
                raise ExecutionRefused(f"{plan.policy}: {given.name} is given, and there is nothing to fill it with")
