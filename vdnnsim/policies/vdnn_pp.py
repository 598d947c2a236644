"""`vdnn_pp`: vDNN++, vDNN without the synchronization at the end of each layer (Shriram, Garg, Kulkarni, IPDPS 2019).

vDNN starts the next layer only when the copy beside the last one is done. vDNN++ starts it at once: an offload runs
beside as many layers as it takes, its memory is released when the copy is done, and a kernel waits only for the map
that it reads. Source: Dynamic Memory Management for GPU-Based Training of Deep Neural Networks, IPDPS 2019, whose other
two concerns, fragmentation and the amount of pinned memory, which it compresses, are not part of this policy.

Assumptions:

- Maps are those of `vdnn_all`, or with `maps: conv` of `vdnn_conv`. A map is prefetched during the backward of the
  layer before the one that reads it.
- Memory is limited to what vDNN would take with the same maps and algorithms: a request beyond that waits for the
  oldest offload under way. So vDNN++ takes the memory of vDNN and less time.
"""

from dataclasses import replace
from enum import Enum
from functools import partial
from typing import ClassVar

from vdnnsim.dnn.workload import Workload
from vdnnsim.plans.liveness import needed_in_backward
from vdnnsim.plans.placement import needed_bytes
from vdnnsim.plans.schemes import Pool
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.algorithms import ByRule
from vdnnsim.policies.interface import DecidedBy, Setting
from vdnnsim.policies.iterations.asynchronous import asynchronous_schedule
from vdnnsim.policies.iterations.layerwise import LAYERWISE, layerwise_schedule
from vdnnsim.policies.swap import JUST_IN_TIME
from vdnnsim.policies.vdnn import maps_of_all, maps_of_conv


class Offloaded(Enum):
    """The X of all feature-extraction layers, or of the CONV layers."""

    ALL = "all"
    CONV = "conv"


class VdnnPlusPlus(ByRule, frozen=True, kw_only=True):
    """Offload as vDNN does, without synchronization of layers."""

    name: ClassVar[str] = "vdnn_pp"
    summary: ClassVar[str] = "vDNN without synchronization at layer ends (vDNN++, Shriram et al. 2019)"
    decided_by: ClassVar[DecidedBy] = DecidedBy.MEMORY

    maps: Offloaded = Offloaded.ALL

    def plan(self, setting: Setting) -> TrainingPlan:
        workload, limits = setting.workload, setting.limits
        maps = self._maps(workload)
        vdnn = self.lowered(setting, layerwise_schedule(workload, maps), LAYERWISE)
        of_vdnn_bytes = needed_bytes(vdnn, limits.granule_bytes)
        as_much = replace(limits, device_bytes=min(of_vdnn_bytes, limits.device_bytes))
        schedule = asynchronous_schedule(workload, dict.fromkeys(sorted(maps), JUST_IN_TIME))
        return self.lowered(setting, schedule, partial(Pool, limits=as_much))

    def _maps(self, workload: Workload) -> frozenset[int]:
        chosen = maps_of_conv(workload) if self.maps is Offloaded.CONV else maps_of_all(workload)
        return frozenset(index for index in chosen if needed_in_backward(workload, workload.graph.maps[index]))
