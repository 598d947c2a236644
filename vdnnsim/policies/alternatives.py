"""Policies whose plans `optimal` tries beside its own."""

from typing import Final

from vdnnsim.plans.operations import Compute
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.base import Base, Resident
from vdnnsim.policies.boundary_search import BoundarySearch
from vdnnsim.policies.caffe import Caffe
from vdnnsim.policies.checkpoint import Checkpoint
from vdnnsim.policies.geeps import GeePS
from vdnnsim.policies.interface import Policy, Setting
from vdnnsim.policies.layrub import LayrubInter
from vdnnsim.policies.memonger import Memonger
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.policies.save_on_cpu import SaveOnCpu
from vdnnsim.policies.superneurons import SuperNeurons
from vdnnsim.policies.swap import StaggeredSwap, Swap
from vdnnsim.policies.tensorflow import TensorFlow
from vdnnsim.policies.vdnn import VdnnAll, VdnnConv, VdnnDyn
from vdnnsim.policies.vdnn_pp import VdnnPlusPlus

AT_ONCE: Final = (Checkpoint, PyTorch, SaveOnCpu, SuperNeurons, Memonger, GeePS, LayrubInter, TensorFlow, Caffe)
ALTERNATIVES: Final[tuple[type[Policy], ...]] = (
    *(*AT_ONCE, StaggeredSwap, Swap, BoundarySearch, VdnnPlusPlus, VdnnDyn, VdnnConv, VdnnAll, Resident, Base),
)
"""Policies whose plans are tried, those that plan at once first.

The bound does not hold for the others: smaller batches, pages, and two policies that write over inputs of kernels.
"""


def kernels_s(setting: Setting, plan: TrainingPlan) -> float:
    """Return the seconds of a plan's kernels one after the other, less than which it cannot take."""
    costs = setting.costs_of(plan.workload)
    kernels = (each for each in plan.operations if isinstance(each, Compute))
    return sum(costs.find(each.layer, each.phase, each.algorithm, each.operation).seconds for each in kernels)


def keeping_all_s(setting: Setting) -> float:
    """Return the seconds of a plan that keeps all, in unlimited memory; 0 where they are unknown.

    Nothing that offloads or recomputes takes less, also where the host, or collectives of a rank, make all plans slower
    than their bound.
    """
    return 0.0 if setting.known_kept_s is None else setting.known_kept_s()
