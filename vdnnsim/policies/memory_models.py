"""Settings with another memory model than the machine's, and the memory models in which `optimal` searches."""

from dataclasses import dataclass, replace

from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.memory.choices import MemoryChoice, preallocated, settings_of
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.interface import Setting, Trial, TrialPort


@dataclass(frozen=True)
class _MarkedTrials:
    """Trials of plans in another memory model than that of the machine."""

    trials: TrialPort
    model: MemoryChoice

    def run_trial(self, plan: TrainingPlan) -> Trial:
        return self.trials.run_trial(_marked(plan, self.model))


def in_memory(setting: Setting, model: MemoryChoice) -> Setting:
    """Return a setting whose plans are placed, and tried, in a memory model, whatever that of `setting` is."""
    return replace(
        setting,
        known_limits=replace(setting.limits, model=model),
        known_trials=_MarkedTrials(setting.trials, model),
        placed=lambda plan: setting.place(_marked(plan, model)),
    )


def _marked(plan: TrainingPlan, model: MemoryChoice) -> TrainingPlan:
    # Of settings within each other, the innermost marks a plan first.
    return plan if plan.memory_model is not None else replace(plan, memory_model=model)


def models_of(setting: Setting) -> dict[MemoryChoice | None, str]:
    """Return the memory models in which plans are searched, the preferred first, in words; None as it is set."""
    settings = settings_of(setting.limits.model)
    if settings is None or settings.preallocated or not isinstance(setting.workload, CapturedWorkload):
        return {None: ""}
    ahead, plain = preallocated(settings), f"PyTorch's allocator as it is set ({settings.words or 'its defaults'})"
    models: dict[MemoryChoice | None, str] = {} if ahead == settings else {ahead: "reserved ahead by the loop"}
    if not settings.expandable_segments:
        models[replace(settings, expandable_segments=True)] = "PyTorch's allocator with expandable segments"
    return {**models, None: plain}


def is_ahead(setting: Setting) -> bool:
    """Return whether memory is reserved ahead, in segments."""
    settings = settings_of(setting.limits.model)
    return settings is not None and settings.preallocated and not settings.expandable_segments
