"""Scenarios in a notebook: loaded, replayed, and their results."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vdnnsim.api.captured import for_machine, model_of
from vdnnsim.api.named import chosen_memory_model, policies_named, profile_named, read_argument
from vdnnsim.dnn.captured_step import CapturedStep
from vdnnsim.errors import CaptureError, OutputError, PolicyError
from vdnnsim.files.messages import not_one_of
from vdnnsim.files.value import Entry
from vdnnsim.report.result_table import ResultTable, Shown

if TYPE_CHECKING:
    from vdnnsim.analysis.answer import Way
    from vdnnsim.analysis.results import PolicyResult, ScenarioResult
    from vdnnsim.api.named import PolicyName, PolicyNames
    from vdnnsim.planning.deadline import TimeLimit
    from vdnnsim.policies.registry import PolicyTypes
    from vdnnsim.report.picture import Picture
    from vdnnsim.scenario.scenario import Scenario


@dataclass(frozen=True, slots=True, repr=False)
class Simulation(ResultTable):
    """Results of policies for a workload on a machine; prints as the table of `vdnnsim run`.

    Attributes:
        result: with the trace of each policy.
    """

    result: "ScenarioResult"

    @classmethod
    def of(
        cls, result: "ScenarioResult", has_all: str = "to_pandas() has all", answer: str = "`result.answer` has all"
    ) -> "Simulation":
        """Return a result as a table; `has_all` and, of the answer, `answer` say where columns are that do not fit."""
        from vdnnsim.analysis.columns import RUN, result_rows
        from vdnnsim.report.run.page import result_table

        return cls(RUN, result_rows(result), result_table(result, has_all, answer), result)

    @property
    def rows(self) -> "tuple[PolicyResult, ...]":
        """The result of each policy, with its metrics, in the order of the scenario."""
        return self.result.results

    @property
    def fitting(self) -> tuple[str, ...]:
        """The policies under which the workload fits, the fastest first."""
        rows = sorted(self.result.slowest, key=lambda row: row.metrics.iteration_s)
        return tuple(row.policy for row in rows if row.fits)

    @property
    def advice(self) -> tuple[str, ...]:
        """What was tried for a model that does not fit, in sentences, best first."""
        from vdnnsim.report.tables.answer import sentences

        return sentences(self.result)

    @property
    def pictures(self) -> "tuple[Picture, ...]":
        """The pictures of `vdnnsim run`, drawn at each access; notebooks show them."""
        from vdnnsim.report.plots import draw_pictures

        return draw_pictures(self.result)

    def __getitem__(self, policy: str | int) -> "PolicyResult":
        """Return the result of a policy by its name, with or without its options, or by its number.

        Raises:
            PolicyError: there is none of this name, or there are several.
            IndexError: there is none of this number.
        """
        if isinstance(policy, int):
            if not -len(self) <= policy < len(self):
                raise IndexError(f"{policy} is not the number of a policy of this result, which has {len(self)}")
            return self.rows[policy]
        found = [row for row in self.rows if policy in {row.policy, row.policy.partition("(")[0]}]
        if len(found) != 1:
            raise PolicyError(not_one_of(str(policy), [row.policy for row in self.rows], "one policy of this result"))
        return found[0]

    def __contains__(self, policy: object) -> bool:
        return any(policy is row or policy in (row.policy, row.policy.partition("(")[0]) for row in self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> "Iterator[PolicyResult]":
        return iter(self.rows)

    def write(self, folder: str | Path) -> None:
        """Write the folder of `vdnnsim run`: report, CSV, pictures and traces.

        Raises:
            OutputError: the folder cannot be written, or has other files.
        """
        from vdnnsim.report.run.folder import write_report

        if Path(folder).suffix == ".html":
            raise OutputError(f"{folder}: expected a folder, which gets report.html among other files")
        write_report(self.result, Path(folder))


@dataclass(frozen=True, slots=True, repr=False)
class LoadedScenario(Shown):
    """A workload on a machine under some policies, from a file."""

    scenario: "Scenario"
    folder: Path

    def __str__(self) -> str:
        from vdnnsim.report.document import plain_table, titled_table
        from vdnnsim.report.findings import caption

        cells = [(each.label, each.summary) for each in self.scenario.policies]
        header = ("policy", "what it does")
        return str(ResultTable(header, cells, titled_table(caption(self.scenario), plain_table(header, cells), (), ())))

    def run(self, time_limit: str | None = None) -> Simulation:
        """Replay every policy, as `vdnnsim run` does.

        Args:
            time_limit: for each search, as `60 s`; of a captured model for all that is replayed, of which that is tried
                that was not tried yet.

        Returns:
            a row for each policy, as of `simulate`.

        Raises:
            PolicyError: no policy has a plan.
            CaptureError: the limit is not a time above 0.
        """
        from vdnnsim.planning.deadline import TimeLimit
        from vdnnsim.policies.registry import known_policies

        if time_limit is None:
            return Simulation.of(run_and_answer(self.scenario, known_policies()))
        limit = read_argument("time_limit", TimeLimit.parse, time_limit)
        return Simulation.of(run_and_answer(self.scenario.limited(time_limit), known_policies(), limit=limit))

    def on(self, hardware: str) -> "LoadedScenario":
        """Return the same scenario on another machine.

        Args:
            hardware: the name of a profile, or a path to one that ends in .yaml.

        Raises:
            ProfileError: there is no such profile, or it does not support the workload's element type.
        """
        from vdnnsim.cost.machine import lacking_peak
        from vdnnsim.errors import ProfileError

        profile = profile_named(hardware, self.folder)
        if lacking := lacking_peak(profile.called, profile.server, self.scenario.workload.element_type):
            raise ProfileError(lacking)
        server = self.scenario.server
        tables = (each.table.name for each in (server.kernels, server.link.copies) if each is not None)
        left = {f"{server.name}.yaml", *tables}
        kept = (each for each in self.scenario.sources if Path(each[0]).name not in left)
        scenario = replace(self.scenario, server=profile.server, sources=(*kept, *profile.sources))
        return replace(self, scenario=scenario)

    def under(self, *policies: "PolicyName") -> "LoadedScenario":
        """Return the same scenario with other policies, `vdnn_all(m)` as a scenario names them, or objects of your own.

        Raises:
            PolicyError: there is no such policy.
        """
        return replace(self, scenario=replace(self.scenario, policies=policies_named(policies)))


def run_and_answer(
    scenario: "Scenario",
    types: "PolicyTypes",
    progress: Callable[[str], object] = str,
    found: "Callable[[Way], object]" = str,
    limit: "TimeLimit | None" = None,
) -> "ScenarioResult":
    """Replay a scenario, also nearby, and try what else fits a captured model that `pytorch` does not surely run.

    `progress` prints a line of progress; `found` gets each way that was tried; `limit` is of all that is replayed.

    Raises:
        PolicyError: no policy has a plan, of a network that is not captured.
    """
    from vdnnsim.planning.deadline import NEVER
    from vdnnsim.scenario.experiment import run_scenario
    from vdnnsim.study.nearby_machines import nearby

    deadline = NEVER if limit is None else limit.begin()
    result = run_scenario(scenario, progress)
    progress("what else would fit")
    result = replace(result, nearby=nearby(scenario, result))
    if scenario.captured is None or not scenario.captured.base.lifetimes:
        return result
    if result.fits_surely and not result.may_be_faster:
        return result
    # Searches, which few runs need.
    from vdnnsim.study.cached_answer import cached_answer

    return replace(result, answer=cached_answer(scenario, result, types, found, limit, deadline))


def scenario_of_step(
    step: object,
    hardware: object,
    policy: "PolicyNames",
    memory_model: str = "pytorch",
    execution: str | None = None,
) -> LoadedScenario:
    """Return the scenario of a captured step, whose words are those of `simulate`."""
    from vdnnsim.engine.host import Execution
    from vdnnsim.scenario.captured import scenario_of

    captured = step_of(step)
    named = execution or ("compiled" if captured.compiled else "eager")
    way = Entry("", "execution", named, CaptureError).choice(Execution, "a way of execution")
    policies, profile = policies_named(policy), profile_named(hardware, Path())
    model = model_of(for_machine(captured, profile.server), way)
    scenario = scenario_of(model, model.base.model, profile, policies, way)
    return LoadedScenario(replace(scenario, memory_model=chosen_memory_model(memory_model)), Path())


def simulate(
    step: CapturedStep | str | Path,
    hardware: str,
    policy: "PolicyNames" = "pytorch",
    *,
    memory_model: str = "pytorch",
    execution: str | None = None,
    time_limit: str | None = None,
) -> Simulation:
    """Replay a captured model on a machine; if it does not fit, try what would make it fit.

    Args:
        step: a captured step, which is captured anew where it was for another card, or its file.
        hardware: the name of a profile, `rtx_4090`, or a path to one that ends in .yaml.
        policy: one as a scenario names it, `vdnn_all(m)`, or an object of your own `Policy`; or several.
        memory_model: the allocator, as in a scenario; `pytorch` is PyTorch's caching allocator,
            `pytorch(expandable_segments:True)` with this in PYTORCH_ALLOC_CONF.
        execution: `eager`, `cuda_graphs`, or `compiled`; of a step captured eagerly, that fuses operators by rule. By
            default as it was captured.
        time_limit: as of `LoadedScenario.run`.

    Returns:
        a row for each policy: seconds of a step, bytes allocated, reserved and of the process, whether it fits.

    Raises:
        ScenarioError: the file is not a captured step.
        CaptureError: `step` is no step, or there is no such memory model, execution or time limit.
        ProfileError: there is no such profile, or it does not support the model's element type.
        PolicyError: there is no such policy, or it does not support captured models.
    """
    return scenario_of_step(step, hardware, policy, memory_model, execution).run(time_limit)


def step_of(step: object) -> CapturedStep:
    """Return a captured step, read where it is a file."""
    from vdnnsim.dnn.captured_file import read_captured_step

    if isinstance(step, CapturedStep):
        return step
    if isinstance(step, str | Path):
        return read_captured_step(Path(step))[0]
    made = "vdnnsim.capture(model, inputs)"
    raise CaptureError(f"step: found an object of {type(step).__name__}, expected a captured step, as of {made}")
