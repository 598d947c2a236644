"""`memonger`: recomputation in O(sqrt n) memory, as MXNet's memonger does it (Chen et al. 2016).

The network is cut into segments; forward keeps the output of each segment alone, and before backward of a segment its
forward is recomputed (Algorithm 1, section 4.3). With k segments of n / k layers a chain needs O(n / k + k) maps, the
least at k = sqrt n, and one more forward. The last segment is recomputed like the others.

Source: Chen, Xu, Zhang, Guestrin, Training Deep Nets with Sublinear Memory Cost, arXiv 1604.06174, and the code that it
refers to, `memonger.py` of dmlc/mxnet-memonger.

Assumptions:

- Candidates for a cut are what the user marks (`mirror_stage`). Here they are all places where a single map passes: the
  block outputs of a residual network, every layer of a chain, where an in-place activation belongs to its layer.
- `segmentation: sqrt` takes ceil(sqrt n) of the n modules between candidates for every segment, as the analysis of
  section 4.3 does. `budget` is Algorithm 3 as the code searches it: a segment ends at the first candidate after which
  its maps exceed a budget; three guesses, each sqrt(xy / 2) of the bytes x that the plan before stores and y of its
  largest segment, beginning at 0, then six budgets between the smallest y and sqrt 2 times the last guess; the plan
  that needs the least memory is taken. The code counts in whole MiB, and this in bytes.
- What backward of a segment does not read is not recomputed, since MXNet mirrors a node only for a backward that reads
  it. MXNet plans memory by lifetime; so every map lives as briefly as it can.
- Workspaces share one temporary space, as large as the largest, which is never freed (MXNet's src/resource.cc,
  SpaceAllocator; `MXNET_GPU_TEMP_COPY` is 1, as in version 1; before some time in 2017 it was 4).
"""

from enum import Enum
from functools import partial
from math import isqrt, sqrt
from typing import ClassVar

from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.placement import needed_bytes
from vdnnsim.plans.schemes import ByLifetime
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.algorithms import ByRule
from vdnnsim.policies.interface import DecidedBy, Setting
from vdnnsim.policies.iterations.segments import Segment, joined, modules, segmented_steps

_GUESSES, _TRIALS = 3, 6


class Segmentation(Enum):
    """How long segments are: the square root of the number of modules, or what a search over budgets finds."""

    SQRT = "sqrt"
    BUDGET = "budget"


class Memonger(ByRule, frozen=True, kw_only=True):
    """Recompute every segment."""

    name: ClassVar[str] = "memonger"
    summary: ClassVar[str] = "square-root recomputation of segments, as MXNet's memonger (Chen et al. 2016)"

    segmentation: Segmentation = Segmentation.SQRT

    @property
    def decided_by(self) -> DecidedBy:
        """A search compares the memory of plans in granules."""
        return DecidedBy.MEMORY if self.segmentation is Segmentation.BUDGET else DecidedBy.COSTS

    def plan(self, setting: Setting) -> TrainingPlan:
        if self.segmentation is Segmentation.BUDGET:
            return self._search(setting)
        parts = modules(setting.workload)
        size = isqrt(len(parts) - 1) + 1
        return self._plan_with(setting, [parts[start : start + size] for start in range(0, len(parts), size)])

    def _search(self, setting: Setting) -> TrainingPlan:
        found: list[tuple[int, TrainingPlan]] = []
        largest_segments: list[int] = []

        def guess(budget_bytes: int) -> int:
            groups, stored_bytes, largest_bytes = segments_within(setting.workload, budget_bytes)
            plan = self._plan_with(setting, groups)
            found.append((needed_bytes(plan, setting.limits.granule_bytes), plan))
            largest_segments.append(largest_bytes)
            return int(sqrt(stored_bytes * largest_bytes / 2))

        budget_bytes = 0
        for _ in range(_GUESSES):
            budget_bytes = guess(budget_bytes)
        lowest = min(largest_segments)
        stride = int((budget_bytes * sqrt(2) - lowest) / _TRIALS)
        if stride > 0:
            for trial in range(1, _TRIALS + 1):
                guess(lowest + trial * stride)
        return min(found, key=lambda each: each[0])[1]

    def _plan_with(self, setting: Setting, groups: list[list[range]]) -> TrainingPlan:
        segments = [Segment(joined(group), recomputed=True) for group in groups]
        steps = segmented_steps(setting.workload, segments)
        return self.lowered(setting, steps, partial(ByLifetime, shares_workspace=True))


def segments_within(workload: Workload, budget_bytes: int) -> tuple[list[list[range]], int, int]:
    """Return the modules of each segment, and the bytes of what is stored and of the largest segment.

    A segment ends at the first module after which the maps made in it, the last one included, exceed the budget. The
    input batch counts to the first; the last segment need not exceed the budget and does not count for the largest.
    """
    made = {each.producer: workload.map_bytes(each.index) for each in workload.graph.maps}
    groups: list[list[range]] = [[]]
    stored_bytes = largest_bytes = 0
    local_bytes = made[None]
    for part in modules(workload):
        groups[-1].append(part)
        local_bytes += sum(made.get(layer, 0) for layer in part)
        if local_bytes > budget_bytes:
            stored_bytes += workload.map_bytes(workload.graph.layers[part[-1]].output)
            largest_bytes = max(largest_bytes, local_bytes)
            local_bytes = 0
            groups.append([])
    return [group for group in groups if group], stored_bytes, largest_bytes
