"""The policies that are shipped, in the order of `vdnnsim list policies`: a new one is its file and a line here."""

from typing import Final

from vdnnsim.policies.accumulate import Accumulate
from vdnnsim.policies.base import Base, Resident
from vdnnsim.policies.boundary_search import BoundarySearch
from vdnnsim.policies.caffe import Caffe
from vdnnsim.policies.checkpoint import Checkpoint
from vdnnsim.policies.geeps import GeePS
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.layrub import LayrubHybrid, LayrubInter, LayrubIntra
from vdnnsim.policies.memonger import Memonger
from vdnnsim.policies.optimal import Optimal
from vdnnsim.policies.page_migration import PageMigration
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.policies.save_on_cpu import SaveOnCpu
from vdnnsim.policies.superneurons import SuperNeurons
from vdnnsim.policies.swap import StaggeredSwap, Swap
from vdnnsim.policies.tensorflow import TensorFlow
from vdnnsim.policies.vdnn import VdnnAll, VdnnConv, VdnnDyn
from vdnnsim.policies.vdnn_pp import VdnnPlusPlus

SHIPPED: Final[tuple[type[Policy], ...]] = (
    Base,
    Resident,
    VdnnAll,
    VdnnConv,
    VdnnDyn,
    VdnnPlusPlus,
    BoundarySearch,
    Optimal,
    PageMigration,
    Swap,
    StaggeredSwap,
    Caffe,
    TensorFlow,
    LayrubIntra,
    LayrubInter,
    LayrubHybrid,
    GeePS,
    Memonger,
    Checkpoint,
    PyTorch,
    SaveOnCpu,
    SuperNeurons,
    Accumulate,
)
