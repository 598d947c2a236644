"""`layrub_intra`, `layrub_inter`, `layrub_hybrid`: Layrub (Jin et al., TACO 2018), which is built on Caffe.

*Within layers* (3.2, 4.2, 4.3): weight gradients are computed before data gradients, and dX is laid over X, which
nobody reads any more. A rectifier keeps one byte for each element, which goes to host memory and comes back. A barrier
between the two gradients costs 3.05 % of their time, in which Caffe's streams overlap.

*Between layers* (3.3, 4.1): a few of the largest spaces are the fixed regions that all maps and gradients share; maps
of several readers have regions of their own, and so have their gradients. Every map leaves with forward of its last
reader (reference count zero), beside its kernel; what a layer in place made leaves behind its kernel
(`vdnnsim.policies.iterations.layrub_spaces`), and so does the normalized map of a batch normalization. While backward
of a layer runs, all that the layer below it left comes back, whether its backward reads it or not. Streams are
synchronized at the end of each layer that copied, and of each layer in backward.

What the paper leaves open: where dX cannot lie over X, for other layers still read it or the kernel itself does, dX
goes to a fixed region, under reuse within layers as well; kernels of batch normalization and pooling may write over
what they read. The diffs of a Split (`vdnnsim.policies.caffe`) lie in regions, and all batch normalizations share the
temporary maps of one. So have the authors, with the copies and waits above (github.com/CGCL-codes/Layrub at 0657919,
src/caffe/net.cpp: ForwardFromTo, BackwardFromTo, interlayer, intralayer). They differ in little: a diff that lies over
no data is taken from the driver and given back in every backward, which may make a copy wait; streams are synchronized
at the end of each layer; the last three layers copy nothing; and a batch normalization is two layers, of which the
second hides what comes back for the first.
"""

from typing import ClassVar

from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.iterations.layrub import layrub_plan
from vdnnsim.policies.iterations.layrub_spaces import Reuse
from vdnnsim.policies.port import DecidedBy, Policy, Setting


class LayrubIntra(Policy, frozen=True, kw_only=True):
    """Lay dX over X.

    All maps stay on the GPU, network-wide as in Caffe; the records of rectifiers alone go to the host and come back.
    """

    name: ClassVar[str] = "layrub_intra"
    summary: ClassVar[str] = "lays gradients over activations (Layrub paper, 3.2)"
    only_built: ClassVar[str] = "lays gradients and maps into the memory of Caffe's layers"
    decided_by: ClassVar[DecidedBy] = DecidedBy.COSTS

    def plan(self, setting: Setting) -> TrainingPlan:
        """Plan with the kernels that Caffe's limit of workspace admits."""
        return layrub_plan(setting, Reuse(within_layers=True, between_layers=False), label=self.label)


class LayrubInter(Policy, frozen=True, kw_only=True):
    """Let all layers share fixed regions; maps leave at reference count zero.

    A gradient takes a space of its own, as every blob of Caffe has one for its data and one for its diff.
    """

    name: ClassVar[str] = "layrub_inter"
    summary: ClassVar[str] = "offloads at reference count zero, all layers share a few regions (Layrub paper, 3.3)"
    only_built: ClassVar[str] = "lays gradients and maps into the memory of Caffe's layers"
    decided_by: ClassVar[DecidedBy] = DecidedBy.COSTS

    def plan(self, setting: Setting) -> TrainingPlan:
        """Plan with the kernels that Caffe's limit of workspace admits."""
        return layrub_plan(setting, Reuse(within_layers=False, between_layers=True), label=self.label)


class LayrubHybrid(Policy, frozen=True, kw_only=True):
    """Lay dX over X, in fixed regions (3.4); what the paper means where it says Layrub."""

    name: ClassVar[str] = "layrub_hybrid"
    summary: ClassVar[str] = "reuses memory within and between layers (Layrub paper, 3.4)"
    only_built: ClassVar[str] = "lays gradients and maps into the memory of Caffe's layers"
    decided_by: ClassVar[DecidedBy] = DecidedBy.COSTS

    def plan(self, setting: Setting) -> TrainingPlan:
        """Plan with the kernels that Caffe's limit of workspace admits."""
        return layrub_plan(setting, Reuse(within_layers=True, between_layers=True), label=self.label)
