"""A policy that recomputes every second activation and offloads the others."""

from contextlib import AbstractContextManager
from typing import ClassVar
from unittest import mock

from vdnnsim.dnn.layers import Phase
from vdnnsim.dnn.step import BufferKind
from vdnnsim.planning.recomputation import Recomputation
from vdnnsim.plans.buffers import IterationBuffers
from vdnnsim.plans.lowering import lower
from vdnnsim.plans.schedule import Offload, Prefetch, ScheduleStep, Wait, iteration
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies import registry
from vdnnsim.policies.algorithms import Algorithms, choose_kernels
from vdnnsim.policies.interface import Policy, Setting


class Mixed(Policy, frozen=True, kw_only=True):
    name: ClassVar[str] = "mixed"
    summary: ClassVar[str] = "recomputes every second activation and offloads the others"

    def plan(self, setting: Setting) -> TrainingPlan:
        workload = setting.workload
        recomputation = Recomputation(iteration(workload), workload, setting.costs)
        runs = recomputation.order(recomputation.droppable[::2])
        buffers = IterationBuffers(workload)
        last: dict[int, int] = {}
        first: dict[int, int] = {}
        for at, run in enumerate(runs):
            reads, writes = buffers.touched(run)
            if run.phase is Phase.FORWARD and not run.repeat:
                last.update(dict.fromkeys((*reads, *writes), at))
            else:
                for each in reads:
                    first.setdefault(each, at)
        remade = {each for run in runs if run.repeat for each in buffers.touched(run)[1]}
        maps = [buffers.buffers[each] for each in sorted(last.keys() & first.keys() - remade)]
        leaving = [
            each.storage
            for each in maps
            if each.kind is BufferKind.FEATURE_MAP and each.nbytes and not each.given and each.storage is not None
        ]
        steps: list[ScheduleStep] = []
        for at, run in enumerate(runs):
            coming = (each for each in leaving if first[each] == at)
            steps += [Prefetch((each,), run.layer, run.phase, on_demand=True) for each in coming]
            steps.append(run)
            for each in (each for each in leaving if last[each] == at):
                steps += [Offload((each,), run.layer), Wait((each,))]
        kernels = choose_kernels(workload, setting.costs, Algorithms.PERFORMANCE_OPTIMAL)
        return lower(steps, workload, kernels, label=self.label, algorithms="p")


def known_as_mixed() -> AbstractContextManager[object]:
    types = {**registry.known_policies(), Mixed.name: Mixed}
    return mock.patch.object(registry, "known_policies", return_value=types)
