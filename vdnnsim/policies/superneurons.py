"""`superneurons`: liveness, a tensor cache, and recomputation of what is cheap (Wang et al., PPoPP 2018).

SuperNeurons: Dynamic GPU Memory Management for Training Deep Neural Networks, section 3, and its code
(linnanwang/superneurons-release). Three techniques bring the maximum down to the largest working set of a layer, and a
fourth spends what is left:

- liveness analysis (3.2): everything is freed after its last reader;
- the unified tensor pool (3.3): maps of CONV layers are offloaded and prefetched, through a cache that copies only when
  memory is short, the least recently used first (`vdnnsim.policies.iterations.tensor_cache`);
- cost-aware recomputation (3.4) of POOL, ACTV, LRN, BN and dropout layers (`vdnnsim.policies.iterations.cheap_layers`);
- for each kernel the fastest algorithm whose workspace fits into what is left (3.5).

What the text leaves open and how it is read here: recomputation is always on, as a build of the code has it or has not,
and as only its cost, not the memory at hand, decides; so an iteration takes longer than one without it even where all
would fit. What may leave are the input and all maps that are not recomputed, for the code treats FC, join and concat
like CONV. An in-place activation belongs to its layer, and where that is CONV nothing of it is recomputed. A fetch
gives up the copy on the host. The cache counts bytes: under a memory model that places buffers at addresses, gaps may
leave less room than it thinks.
"""

from typing import ClassVar

from vdnnsim.plan.lowering import lower
from vdnnsim.plan.schedule import forward, update
from vdnnsim.plan.training_plan import TrainingPlan
from vdnnsim.policies.iterations.cheap_layers import backward_with_recomputation, recomputed_maps
from vdnnsim.policies.iterations.tensor_cache import TensorCache
from vdnnsim.policies.port import DecidedBy, Policy, Setting


class SuperNeurons(Policy, frozen=True, kw_only=True):
    """Recompute what is cheap, copy what does not fit, and give workspaces the rest."""

    name: ClassVar[str] = "superneurons"
    summary: ClassVar[str] = (
        "recomputes cheap layers, caches the other maps, workspace from the rest (Wang et al. 2018)"
    )
    decided_by: ClassVar[DecidedBy] = DecidedBy.MEMORY

    def plan(self, setting: Setting) -> TrainingPlan:
        """Plan within the memory of the setting."""
        workload = setting.workload
        runs = forward(workload) + backward_with_recomputation(workload) + update(workload)
        cached = frozenset(range(len(workload.graph.maps))) - recomputed_maps(workload)
        cache = TensorCache(workload, setting.costs, setting.limits, cached)
        cache.walk(runs)
        return lower(cache.steps, workload, cache.kernels, label=self.label, algorithms="what is left")
