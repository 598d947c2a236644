"""Which layout over several GPUs: one rank of a model captured in each, replayed, and ranked by throughput.

Every layout trains the same samples in a step, so many for each GPU. Each is tried with the fewest checkpoints that
fit, where the search begins with those that the first layout needs, and tries fewer where a layout holds so much less.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from vdnnsim.analysis.layouts import (
    LayoutRanking,
    Ranked,
    Refused,
    Setup,
)
from vdnnsim.analysis.memory import process_bytes
from vdnnsim.analysis.metrics import measure
from vdnnsim.analysis.rank_times import rank_times
from vdnnsim.analysis.utilization import flop_by_module, flop_ratio, product_type, repeated_modules
from vdnnsim.cost.trust import certain_bytes
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.dnn.layout import Layout, parse_layout
from vdnnsim.dnn.samples import IMAGE, Sample
from vdnnsim.dnn.step import BufferKind
from vdnnsim.errors import CaptureError, InputError, PlanError
from vdnnsim.hardware.profile import Profile
from vdnnsim.policies.pytorch import PyTorch
from vdnnsim.scenario.captured import scenario_of
from vdnnsim.scenario.experiment import simulator_of
from vdnnsim.study.usual_layouts import FIRST, data_layouts_of
from vdnnsim.units import ElementType, format_bytes

CHECKPOINTING: Final = ("none", "selective", "full")
"""From the fastest to the one that takes least memory."""


def rank_layouts(
    gpus: int,
    names: Sequence[str],
    samples: int,
    profile: Profile,
    capture: Callable[[Setup], Sequence[CapturedStep]],
    done: Callable[[str], object] = str,
    *,
    micro_batches: int = 1,
    tries_all: bool = True,
) -> LayoutRanking:
    """Capture a rank of a model in each layout, replay it, and rank the layouts by throughput.

    Args:
        gpus: of every layout.
        names: of the layouts.
        samples: of a micro-batch, for each GPU.
        profile: of the machine.
        capture: returns the step of a rank, or of each rank of a pipeline, or raises InputError.
        done: gets the name of each finished layout.
        micro_batches: of a step.
        tries_all: whether layouts with shards in host memory are tried even though another fits.

    Raises:
        CaptureError: none can be captured, for one reason.
    """
    trials = _Trials(profile, samples, micro_batches, capture)
    ranking = _ranking(gpus, names, trials, done, tries_all=tries_all)
    _refuse_unanswered(ranking)
    return ranking


def _refuse_unanswered(ranking: LayoutRanking) -> None:
    reasons = {"" if each.held_bytes else each.reason for each in ranking.refused}
    if not ranking.ranked and len(reasons) == 1 and (reason := reasons.pop()):
        # What no layout changes, as inputs that are missing.
        raise CaptureError(reason)


def _ranking(
    gpus: int, names: Sequence[str], trials: "_Trials", done: Callable[[str], object], *, tries_all: bool
) -> LayoutRanking:
    found: list[Ranked | Refused] = []
    for name in names:
        if tries_all or not _layout(name).offloads or not any(isinstance(each, Ranked) for each in found):
            found.append(trials.of(name))
        done(name)
    ranked = sorted((each for each in found if isinstance(each, Ranked)), key=lambda each: -each.samples_per_s)
    refused = (each for each in found if isinstance(each, Refused))
    server = trials.profile.server
    memory_bytes = server.gpu.memory_bytes
    return LayoutRanking(
        trials.sample, server.name, gpus, memory_bytes, tuple(ranked), tuple(refused), trials.peak_type
    )


def scale_layouts(
    counts: Sequence[int],
    samples: int,
    profile_of: Callable[[int], Profile],
    capture: Callable[[Setup], Sequence[CapturedStep]],
    done: Callable[[str], object] = str,
    *,
    micro_batches: int = 1,
) -> tuple[LayoutRanking, ...]:
    """Rank the layouts that split no layers, as `rank_layouts`, for several numbers of GPUs, the fewest first.

    More GPUs need no more checkpoints, so the most are tried first.
    """
    found, level = list[LayoutRanking](), 0
    for gpus in sorted(counts, reverse=True):
        profile = profile_of(gpus)
        names = data_layouts_of(gpus, profile.server.gpu_count, accumulates=micro_batches > 1)
        trials = _Trials(profile, samples, micro_batches, capture, level)
        found.append(_ranking(gpus, names, trials, done, tries_all=True))
        if len(found) == 1:
            _refuse_unanswered(found[0])
        tried = [CHECKPOINTING.index(each.setup.checkpointing) for each in found[-1].ranked]
        level = min(tried, default=level)
    return tuple(found[::-1])


@dataclass
class _Trials:
    """Layouts that are tried one after the other.

    Attributes:
        level: the position in `CHECKPOINTING` at which the first layout fitted.
        sharded: the last captured rank of `fsdp`.
        peak_type: in which products of the last layout that fits are computed.
        first_bytes: what the first layout that fits, or those before it, hold by level.
        flop: of the model for a sample, by module, from the first layout that splits no layer.
    """

    profile: Profile
    samples: int
    micro_batches: int
    capture: Callable[[Setup], Sequence[CapturedStep]]
    level: int = 0
    sharded: CapturedStep | None = None
    sample: Sample = IMAGE
    peak_type: ElementType | None = None
    first_bytes: dict[int, int] = field(default_factory=dict)
    flop: dict[str, float] = field(default_factory=dict)

    def of(self, name: str) -> Ranked | Refused:
        """Return a layout with the fewest checkpoints that fit, or why none does."""
        spread = _layout(name)
        held = 0 if self.sharded is None else _held_bytes(spread, self.sharded)
        if held > self.profile.server.gpu.memory_bytes:
            what = f"parameters, gradients, DDP's buckets and optimizer states take {format_bytes(held)} of a GPU"
            return Refused(Setup(name, CHECKPOINTING[0], self.samples), what)
        is_first = self.peak_type is None
        for level in range(self.level, len(CHECKPOINTING)):
            found = self._at(name, level)
            if isinstance(found, Ranked) or not found.held_bytes:
                break
        if isinstance(found, Ranked):
            # Later layouts may hold less than this one, or even than the first.
            self.level = level if is_first else self.level
            while self._leaves_room(found, level - 1) and isinstance(fewer := self._at(name, level - 1), Ranked):
                found, level = fewer, level - 1
        return found

    def _at(self, name: str, level: int) -> Ranked | Refused:
        """Return a layout with the checkpoints of a level, or why it does not fit or cannot be."""
        spread = _layout(name)
        # Ranks of split layers and of a pipeline train the same samples.
        together = self.samples * spread.tensor * spread.pipeline
        parts = _micro_batches(together, spread.pipeline)
        setup = Setup(name, CHECKPOINTING[level], together // parts, parts * self.micro_batches)
        try:
            step, *others = self.capture(setup)
            ranks = flop_by_module((step, *others), self.samples * setup.captured_together / parts)
            if not self.flop:
                alone = Setup("", setup.checkpointing, self.samples)
                self.flop = ranks if spread.tensor == 1 else flop_by_module(self.capture(alone), self.samples)
            samples, sample_flop = self.samples * self.micro_batches, sum(self.flop.values())
            found = _replayed((step, *others), setup, samples, sample_flop, self.profile)
            if isinstance(found, Ranked) and spread.tensor > 1:
                found = replace(found, repeated=repeated_modules(self.flop, ranks, spread.tensor))
        except (InputError, PlanError) as refusal:
            return Refused(setup, str(refusal))
        is_sequence = step.sample == "sequence"
        self.sample = Sample(step.sample, *(("token", step.sample_elements) if is_sequence else ()))
        if name == f"{FIRST}={step.ranks}":
            self.sharded = step
        if self.peak_type is None:
            self.first_bytes[level] = found.held_bytes
        if isinstance(found, Ranked):
            self.peak_type = product_type(step, self.profile.server)
        return found

    def _leaves_room(self, found: Ranked, level: int) -> bool:
        """Whether a layout may fit with fewer checkpoints, which add to it as much as they did to the first layout."""
        first = self.first_bytes
        if level not in first or level + 1 not in first:
            return False
        held = found.held_bytes + first[level] - first[level + 1]
        return held <= certain_bytes(self.profile.server.gpu.memory_bytes)


def _layout(name: str) -> Layout:
    """Return the layout of a name; the empty one is of one GPU."""
    return parse_layout(name) if name else Layout(name)


def _micro_batches(samples: int, stages: int) -> int:
    """Return into how many micro-batches a pipeline cuts so many samples: at most four for each stage."""
    return 1 if stages == 1 else max(each for each in range(1, 4 * stages + 1) if samples % each == 0)


def _held_bytes(layout: Layout, sharded: CapturedStep) -> int:
    """Return what parameters, gradients and states take under `ddp` and `zero1`, from a rank of `fsdp`; else 0.

    A shard is one nth of each, all in the type of the parameters. Gradients are there twice, the second time in the
    buckets of DistributedDataParallel.
    """
    if layout.ranks != sharded.ranks or layout.copies != sharded.ranks or not layout.is_replicated:
        return 0
    weights = sum(each.nbytes for each in sharded.storages if each.given and each.kind is BufferKind.WEIGHTS)
    states = sum(each.nbytes for each in sharded.storages if each.given and each.kind is BufferKind.OPTIMIZER_STATE)
    return 3 * weights * layout.copies + states * (layout.copies if layout.data == "ddp" else 1)


def _replayed(
    steps: Sequence[CapturedStep], setup: Setup, samples: int, sample_flop: float, profile: Profile
) -> Ranked | Refused:
    policy, step = PyTorch(), steps[0]
    rounds = setup.micro_batches // setup.captured_together
    others = [CapturedModel(each) for each in steps[1:]]
    model = CapturedModel(step, sources=((step.model, ""),), others=others, rounds=rounds)
    scenario = scenario_of(model, step.model, profile, (policy,))
    # With NCCL's buffers in each process.
    server, simulator = scenario.server, simulator_of(scenario)
    planned = simulator.planned(policy)
    replayed = simulator.replay(planned.plans, planned.replayed)
    traces, iteration_s = replayed.gpus, replayed.iteration_s
    held = max(process_bytes(each, server.gpu) for each in traces)
    if held > (most := certain_bytes(server.gpu.memory_bytes)) or planned.refusals:
        whole = f"would hold {format_bytes(held)} of {format_bytes(server.gpu.memory_bytes)}"
        return Refused(setup, f"{whole}; {format_bytes(most)} are sure to fit", held)
    metrics = [measure(each, step.batch_size, iteration_s if step.pipeline > 1 else None) for each in traces]
    return Ranked(
        setup=setup,
        times=rank_times(traces),
        samples_per_s=samples * step.ranks / iteration_s,
        flop_ratio=flop_ratio(samples * sample_flop, iteration_s, step, server),
        asked_bytes=max(each.allocated_bytes for each in metrics),
        reserved_bytes=max(each.pool_bytes for each in traces),
        held_bytes=held,
        peak_by_kind=max(metrics, key=lambda each: each.allocated_bytes).peak_by_kind,
    )
