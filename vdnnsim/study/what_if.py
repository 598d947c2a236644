"""One question at a time: a scenario before and after some of its values and figures are changed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vdnnsim.analysis.kernel_origins import KernelOrigins, joined_origins, kernel_origins
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.errors import StudyError
from vdnnsim.files.value import Entry
from vdnnsim.files.yaml_file import plain_value
from vdnnsim.plans.training_plan import TrainingPlan
from vdnnsim.policies.registry import PolicyTypes
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.scenario.simulator import Simulator
from vdnnsim.study.file.keys import Key, check_combination, find_key, study_keys
from vdnnsim.study.points.compute import PointRunner
from vdnnsim.study.points.resolve import POLICY, Resolver, Value
from vdnnsim.study.results.rows import StudyRow


@dataclass(frozen=True, slots=True)
class Change:
    """What came of one policy of a scenario before and after.

    Attributes:
        kernels_before, kernels_after: what its plans launch; none where there are no plans.
    """

    label: str
    before: StudyRow
    after: StudyRow
    kernels_before: KernelOrigins
    kernels_after: KernelOrigins


def what_if(base: Scenario, folder: Path, settings: Sequence[str], policy_types: PolicyTypes) -> tuple[Change, ...]:
    """Run every policy of a scenario as it is, and with settings as `link.bandwidth=300 GB/s`.

    Raises:
        StudyError: a setting names nothing, or has no value that it may have, or under no policy can the settings be.
    """
    values = _values(settings, study_keys(policy_types, folder), base.captured)
    launched: list[KernelOrigins] = []
    resolver = Resolver(base, folder)

    def watch(simulator: Simulator, plans: Sequence[TrainingPlan]) -> None:
        launched.append(kernel_origins(plans, simulator.cost_model))

    runner = PointRunner(watch)

    def row(point: dict[str, Value]) -> tuple[StudyRow, KernelOrigins]:
        resolved = resolver.resolve(point)
        launched.clear()
        return StudyRow(point, resolved, runner.run(resolved)), joined_origins(launched)

    after = [row({**values, POLICY: policy}) for policy in base.policies]
    reasons = {each.resolved.error for each, _ in after}
    if len(reasons) == 1 and all(reasons):
        raise StudyError(f"--set: {reasons.pop()}")
    before = [row({POLICY: policy}) for policy in base.policies]
    return tuple(
        Change(policy.label, was, becomes, kernels_was, kernels_becomes)
        for policy, (was, kernels_was), (becomes, kernels_becomes) in zip(base.policies, before, after, strict=True)
    )


def _values(settings: Sequence[str], known: Mapping[str, Key], captured: CapturedModel | None) -> dict[str, Value]:
    keys = {name: key for name, key in known.items() if name != POLICY}
    values: dict[str, Value] = {}
    for setting in settings:
        name, equals, text = (part.strip() for part in setting.partition("="))
        entry = Entry("--set", name, plain_value(text), StudyError)
        whole = Entry("--set", "", setting, StudyError)
        if not equals or not text:
            raise whole.expected("KEY=VALUE, as link.bandwidth=300GB/s")
        key = find_key(name, keys, whole)
        if name in values:
            raise whole.wrong(f"{name} is set twice, expected once")
        values[name] = key.read(entry)
        check_combination(values, whole, captured)
    return values
