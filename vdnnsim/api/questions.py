"""Questions about a scenario or a captured step, as the commands `machines`, `max-batch`, `whatif` and `parallel`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vdnnsim.api.captured import Captured, for_machine, model_of, models_by_card
from vdnnsim.api.named import machines_named, policies_named, profile_named, read_argument
from vdnnsim.api.scenarios import LoadedScenario, scenario_of_step, step_of
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.errors import CaptureError, StudyError
from vdnnsim.files.messages import describe
from vdnnsim.report.result_table import ResultTable

if TYPE_CHECKING:
    from vdnnsim.analysis.layouts import Setup
    from vdnnsim.api.named import PolicyNames

_ALL = "to_pandas() has all"
Asked = LoadedScenario | CapturedStep
"""What is asked about: a scenario, as `load` returns it, or a step, as of `capture`."""


def machines(asked: Asked, *hardware: str, policy: "PolicyNames" = ()) -> ResultTable:
    """Rank machines for a scenario or a captured step by fit and speed, as `vdnnsim machines`.

    Args:
        asked: a scenario, of which the fastest policy counts, or a step.
        hardware: names of profiles, or paths; by default one for each card that comes with vdnnsim.
        policy: policies to try, by default those of the scenario; for a step `pytorch`, and if that does not fit what
            `vdnnsim run` advises first.

    Returns:
        a row for each machine: seconds of a step, bytes allocated, reserved and of the process, expected error.

    Raises:
        ProfileError: there is no such profile, or none supports the element type.
        PolicyError: there is no such policy, or it does not support captured models.
    """
    from vdnnsim.engine.host import Execution
    from vdnnsim.policies.registry import known_policies
    from vdnnsim.report.machines import machines_table
    from vdnnsim.study.cached_answer import kept_ways
    from vdnnsim.study.less_work import PLAIN
    from vdnnsim.study.machines import rank_machines, scenario_on_any
    from vdnnsim.study.ways_on_machines import rank_by_ways

    if isinstance(asked, LoadedScenario):
        found = _scenario(asked, "", policy)
        scenario, profiles = found.scenario, machines_named(hardware, found.folder, found.scenario.gpus)
        return machines_table(scenario, rank_machines(scenario, profiles), _ALL)
    step = step_of(asked)
    way = Execution.COMPILED if step.compiled else Execution.EAGER
    profiles, policies = machines_named(hardware, Path()), policies_named(policy or PLAIN)
    model = model_of(step, way)
    captured_for = models_by_card(step, model, way)
    scenario = scenario_on_any(model, step.model, profiles, policies, way)
    if policy:
        ranking = rank_machines(scenario, profiles, captured_for=captured_for, first_where_it_fits=True)
    else:
        named, types = bool(hardware), known_policies()
        ranking = rank_by_ways(scenario, profiles, types, captured_for, are_named=named, tried_before=kept_ways)
    return machines_table(scenario, ranking, _ALL)


def max_batch(
    asked: Asked,
    hardware: str = "",
    policy: "PolicyNames" = (),
    *,
    longest: bool = False,
    time_limit: str = "18 s",
) -> ResultTable:
    """Find the largest batch that fits under each policy, and what stops one more, as `vdnnsim max-batch`.

    Args:
        asked: a scenario, or a step of `capture`, which is captured again at other batches.
        hardware: the name of a profile, or a path; for a scenario by default its own.
        policy: one or several; by default those of the scenario, or `pytorch`.
        longest: whether to find the longest sequence at the batch instead.
        time_limit: of the search, in processor time, as `18 s`.

    Returns:
        a row for each policy: `batch_size` of one GPU, 0 if none fits, samples per second, and in `refusal` what one
        more sample would lack.

    Raises:
        ProfileError: there is no such profile.
        PolicyError: there is no such policy, or none has a plan.
        StudyError: the workload has no sequences, or cannot be captured at other lengths.
        CaptureError: the time limit is not a time above 0.
    """
    from vdnnsim.planning.deadline import TimeLimit
    from vdnnsim.study.largest_table import largest_table

    scenario = _scenario(asked, hardware, policy).scenario
    return largest_table(scenario, read_argument("time_limit", TimeLimit.parse, time_limit), _ALL, longest=longest)


def whatif(asked: Asked, *settings: str, hardware: str = "", policy: "PolicyNames" = ()) -> ResultTable:
    """Replay policies before and after a change, and say what it did, as `vdnnsim whatif`.

    Args:
        asked: a scenario or a step.
        settings: figures of the machine, or values of the scenario, as `gpu.memory=8GiB`. With
            `execution=compiled` a step of `capture` is captured once more, as `torch.compile` makes it.
        hardware: the name of a profile, or a path; of a scenario by default its own.
        policy: one or several; by default those of the scenario, or `pytorch`.

    Returns:
        two rows for each policy, `before` and `after`: seconds of an iteration and of stalls, samples per second, bytes
        allocated and reserved.

    Raises:
        StudyError: a setting has a wrong name or value, or the settings are impossible under every policy.
        ProfileError: there is no such profile.
        PolicyError: there is no such policy.
    """
    from vdnnsim.policies.registry import known_policies
    from vdnnsim.study.what_if import change_result, what_if

    if not settings:
        raise StudyError("settings: found none, expected one or more, as 'gpu.memory=8GiB'")
    for each in settings:
        if not isinstance(each, str):
            raise StudyError(f"settings: found {describe(each)}, expected text, as 'gpu.memory=8GiB'")
    found = _scenario(asked, hardware, policy)
    changes = what_if(found.scenario, found.folder, settings, known_policies(), "settings")
    return change_result(found.scenario, changes, settings, _ALL)


def parallel(
    step: CapturedStep, hardware: str, *, gpus: int | None = None, layout: str | Sequence[str] = (), accumulate: int = 1
) -> ResultTable:
    """Rank the ways to train a model on several GPUs, as `vdnnsim parallel`.

    The model is captured again, one rank of each layout with as few checkpoints as fit.

    Args:
        step: of `capture`, on one GPU; each of the GPUs trains as many samples.
        hardware: a server, as `h100_x8`, or a card of one.
        gpus: how many; by default those of the layouts, else all of the server.
        layout: those to try, as `fsdp=8`; by default the usual ones.
        accumulate: micro-batches, each of the samples of the step, before the optimizer's.

    Returns:
        a row for each layout: seconds of a step, tokens per second of one GPU, MFU, seconds that wait for collectives,
        bytes allocated, reserved and of the process of a rank.

    Raises:
        CaptureError: the step cannot be captured again, like one from a file, or a layout has a wrong name, or
            `accumulate` is not a number of micro-batches.
        InputError: there is no such server, or a layout is for another number of GPUs.
    """
    from vdnnsim.dnn.captured_model import MOST_ROUNDS
    from vdnnsim.dnn.layout import parse_layout
    from vdnnsim.files.value import Entry
    from vdnnsim.report.layouts import layouts_table, samples_text
    from vdnnsim.study.layouts import rank_layouts
    from vdnnsim.study.servers import choice_text, server_for
    from vdnnsim.study.usual_layouts import gpus_of, layouts_of

    Entry("", "accumulate", accumulate, CaptureError).integer(1, MOST_ROUNDS)
    asked = [parse_layout(name, "layout") for name in ([layout] if isinstance(layout, str) else layout)]
    named = profile_named(hardware, Path())
    gpus, profile = server_for(named, gpus_of(asked, gpus))
    step = for_machine(step_of(step), profile.server)
    recapture = step.at_batch if isinstance(step, Captured) else None
    if recapture is None:
        raise CaptureError("step: cannot be captured for several GPUs, expected one that `vdnnsim.capture` returned")

    def captured(chosen: "Setup") -> list[CapturedStep]:
        words = {
            "parallel": chosen.layout,
            "accumulate": chosen.captured_together,
            "checkpointing": "" if chosen.checkpointing == "none" else chosen.checkpointing,
        }
        positions = range(parse_layout(chosen.layout, "layout").pipeline)
        return [recapture(chosen.batch_size, **words, position=each) for each in positions]

    tried = [each.text for each in asked] or layouts_of(gpus, profile.server.gpu_count, accumulates=accumulate > 1)
    ranking = rank_layouts(
        gpus, tried, step.batch_size, profile, captured, micro_batches=accumulate, tries_all=bool(asked)
    )
    what = f"{step.model}, {samples_text(step.batch_size, accumulate)}, {step.precision.value}"
    return layouts_table(ranking, what, "", _ALL, choice_text(named, (profile,)))


def _scenario(asked: Asked, hardware: str, policy: "PolicyNames") -> LoadedScenario:
    """Return a scenario on a machine under policies; without these a scenario keeps its own."""
    if not isinstance(asked, LoadedScenario):
        return scenario_of_step(asked, hardware or None, policy or "pytorch")
    asked = asked.on(hardware) if hardware else asked
    return asked.under(*policies_named(policy)) if policy else asked
