"""What is there when an iteration begins: the content of given buffers, kept on the host to be filled in again."""

from collections import Counter

import torch

from calibration.compiled_plan import CompiledPlan
from calibration.kernels.initial import fill_input, fill_state, fill_weights, labels
from calibration.kernels.tensors import Part, shaped_view
from vdnnsim.dnn.workload import Workload
from vdnnsim.errors import ExecutionRefused
from vdnnsim.plans.training_plan import Buffer, BufferKind, TrainingPlan


class GivenContent:
    """The content of the given buffers of every plan of a workload, drawn once."""

    def __init__(self, workload: Workload, seed: int, *, channels_last: bool) -> None:
        self._workload = workload
        self._channels_last = channels_last
        self._seed = seed
        self._drawn: dict[tuple[BufferKind, int, int], torch.Tensor] = {}

    def of(self, compiled: CompiledPlan) -> dict[int, torch.Tensor]:
        """Return the content of the given buffers of a plan, by buffer, as flat elements on the host.

        Raises:
            ExecutionRefused: there is none for one of them.
        """
        contents = {}
        seen: Counter[tuple[BufferKind, int]] = Counter()
        storages = compiled.plan.workload.step.storages
        for number, (buffer, form) in enumerate(zip(compiled.plan.buffers, compiled.forms, strict=True)):
            if not buffer.given or buffer.storage is None or form is None:
                continue
            # The states of an optimizer come in their order.
            owner = storages[buffer.storage].owner
            key = (buffer.kind, owner, seen[buffer.kind, owner])
            seen[buffer.kind, owner] += 1
            if key not in self._drawn:
                self._drawn[key] = self._draw(compiled.plan, buffer, key, form)
            contents[number] = self._drawn[key]
        return contents

    def _draw(self, plan: TrainingPlan, buffer: Buffer, key: tuple[BufferKind, int, int], form: Part) -> torch.Tensor:
        kind, owner, ordinal = key
        content = torch.empty(torch.Size(form.shape).numel(), dtype=form.dtype)
        graph = self._workload.graph
        match kind:
            case BufferKind.FEATURE_MAP if graph.maps[owner].producer is None:
                fill_input(shaped_view(content, form.shape, channels_last=form.channels_last), self._seed)
            case BufferKind.LABELS:
                content.copy_(labels(self._workload, self._seed))
            case BufferKind.WEIGHT_GRADIENT:
                # As zero_grad leaves those that are kept.
                content.zero_()
            case BufferKind.WEIGHTS:
                fill_weights(graph.layers[owner], content, self._seed, channels_last=self._channels_last)
            case BufferKind.OPTIMIZER_STATE:
                fill_state(graph.layers[owner], ordinal, content, self._seed)
            case _:
                raise ExecutionRefused(f"{plan.policy}: {buffer.name} is given, and there is nothing to fill it with")
        return content
