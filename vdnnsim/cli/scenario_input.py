"""The scenario that a command is about: read from a file, or made of a PyTorch model that is captured now.

    --model my_model.py:make --batch 8 --hardware rtx_4090

A model is captured as by `vdnnsim capture`, and again at other batch sizes and in other precisions where needed.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import click

from vdnnsim.cli.captures import captured_ranks, captured_with_notice, for_card, request_of
from vdnnsim.cli.model_options import CAPTURE, RUN, describes_model
from vdnnsim.cli.options import HARDWARE, POLICIES, POLICY_MODULE, SCENARIO, Command, policies_with, read_option
from vdnnsim.errors import CaptureError, InputError

if TYPE_CHECKING:
    from calibration.capture.request import Request
    from vdnnsim.dnn.captured_step import CapturedStep
    from vdnnsim.dnn.training_loops import Loop
    from vdnnsim.engine.host import Execution
    from vdnnsim.hardware.profile import Profile
    from vdnnsim.hardware.server import Server
    from vdnnsim.policies.interface import Policy
    from vdnnsim.policies.registry import PolicyTypes
    from vdnnsim.scenario.scenario import Scenario
    from vdnnsim.study.policies_on_machine import CapturedFor

_POLICIES: Final = ("pytorch",)
"""Micro-batches of an iteration; more would take minutes to plan."""
POLICY: Final = click.option(
    "--policy", "policies", type=POLICIES, multiple=True, help="With --model: a policy, as pytorch; may be repeated."
)


@dataclass(frozen=True, slots=True)
class ScenarioInput:
    """The scenario that a command is about.

    Attributes:
        types: known policies by name.
        folder: where profiles are looked up.
        path: of the scenario; None for a model.
        captured_for: captures a model for the card of another machine; None of what cannot be captured.
    """

    scenario: "Scenario"
    types: "PolicyTypes"
    folder: Path
    path: Path | None = None
    captured_for: "CapturedFor | None" = None

    @property
    def question(self) -> str:
        """What is asked about a model; empty of a scenario, whose name says it."""
        from vdnnsim.report.findings import question_text

        return question_text(self.scenario) if self.path is None else ""

    def folder_name(self, command: str) -> str:
        """Return the name of the folder of a report: the scenario's, of a model with command and machine."""
        scenario = self.scenario
        return scenario.name if self.path is not None else f"{scenario.name}-{command}-{scenario.server.name}"


def asks_scenario(command: Command) -> Command:
    """Add a scenario, or options of a model in its place, to a command, passed to it as one `given`.

    The command's option `policies` is for a model.
    """

    @SCENARIO
    @describes_model
    @click.option("--hardware", type=HARDWARE, help="With --model: a hardware profile, by name or path.")
    @POLICY_MODULE
    @wraps(command)
    def with_input(*, scenario: Path | None, policy_modules: Sequence[str], **others: Any) -> Any:  # noqa: ANN401  # as the command has it
        words = {name: others.pop(name) for name in _WORDS}
        types, policies = policies_with(policy_modules), others.pop("policies", ())
        return command(given=_read(scenario, words, types, policies), **others)

    return cast("Command", with_input)


_WORDS: Final = tuple(
    each.removeprefix("--").replace("-", "_") for each in ("--model", "--batch", "--hardware", *CAPTURE, *RUN)
)


def _read(path: Path | None, words: Mapping[str, Any], types: "PolicyTypes", policies: Sequence[str]) -> ScenarioInput:
    """Return the scenario of a file or a model, whose default policy is `pytorch`, or raise InputError."""
    from vdnnsim.cost.model import checked_profile
    from vdnnsim.hardware.profile import find_profile
    from vdnnsim.policies.registry import resolve_policy
    from vdnnsim.scenario.captured import SUFFIX
    from vdnnsim.scenario.read import read_scenario

    refuse_mixture(path, words, policies)
    if path is None:
        chosen = tuple(resolve_policy(each, types) for each in policies or _POLICIES)
        return model_input(words, [checked_profile(find_profile(words["hardware"], Path()))], chosen, types)
    if path.name.endswith(SUFFIX):
        named = f"`workload: {{step: {path}}}`"
        raise InputError(f"{path}: is a captured step, expected a scenario that names it as {named}")
    return ScenarioInput(read_scenario(path, types), types, path.parent, path)


def refuse_mixture(path: Path | None, words: Mapping[str, Any], policies: Sequence[str] = ()) -> None:
    """Raise InputError for a model beside a file, for neither, and for missing options of a model."""
    given = [f"--{name.replace('_', '-')}" for name, value in words.items() if value is not None]
    given += ["--policy"] * bool(policies)
    if path is not None:
        if given:
            change = "`vdnnsim whatif SCENARIO --set KEY=VALUE` changes what one says"
            raise InputError(f"{given[0]}: found beside {path.name}, expected one of SCENARIO and --model; {change}")
        return
    if words["model"] is None:
        raise click.UsageError("Missing argument 'SCENARIO', or --model with --batch and --hardware.")
    for name in ("batch", "hardware"):
        if name in words and words[name] is None:
            raise InputError(f"--{name}: is missing, expected --model MODEL --batch N --hardware NAME")


def model_input(
    words: Mapping[str, Any],
    profiles: "Sequence[Profile]",
    policies: "tuple[Policy, ...]",
    types: "PolicyTypes",
) -> ScenarioInput:
    """Return the scenario of the model of options, captured for the first machine, or raise InputError."""
    import msgspec

    from calibration.capture.card_classes import captured_alike
    from calibration.capture.isolation import CapturingProcess
    from calibration.capture.request import Request
    from vdnnsim.cost.ranks import cluster_of
    from vdnnsim.dnn.captured_model import CapturedModel
    from vdnnsim.dnn.captured_on_card import ModelsByCard
    from vdnnsim.engine.host import Execution
    from vdnnsim.memory.choices import allocator
    from vdnnsim.scenario.captured import as_executed
    from vdnnsim.study.machines import scenario_on_any

    execution = _execution(words["execution"] or Execution.EAGER.value)
    memory_model = read_option("--allocator", allocator, words["allocator"] or "")
    request = request_of(words["model"], words["batch"], words)
    # What torch.compile makes of real tensors is not known: their operators are fused by rule.
    request = msgspec.structs.replace(request, compiled=execution is Execution.COMPILED and not request.real)
    request.check()
    if request.layout and len(profiles) == 1:
        cluster_of(profiles[0].called, profiles[0].server, request.layout.ranks)
    rounds = checked_rounds(words["accumulate"], request)
    request = for_card(request, profiles[0].server)

    process = CapturingProcess()

    def executed(way: str) -> CapturedModel:
        return cast(
            "CapturedModel", model_input({**words, "execution": way}, profiles, policies, types).scenario.captured
        )

    def recapture(asked: "Request", batch_size: int) -> "CapturedStep":
        (step,) = captured_with_notice((msgspec.structs.replace(asked, batch_size=batch_size),), process=process)
        return as_executed(step, execution)

    def model_of(asked: "Request", steps: "Sequence[CapturedStep]") -> CapturedModel:
        first, *others = (as_executed(each, execution) for each in steps)
        ranks = [msgspec.structs.replace(asked, position=at) for at in range(len(steps))]
        return CapturedModel(
            first,
            sources=(_source(asked, [first, *others] if others else first),),
            capture=partial(recapture, asked),
            capture_lengths=partial(of_lengths, asked),
            # What Inductor makes of other loops is not captured, nor are those of micro-batches that overlap.
            capture_loop=None if asked.compiled or asked.captures_all else partial(in_loop, asked),
            capture_execution=executed if asked is request else None,
            rounds=1 if asked.captures_all else rounds,
            others=[
                CapturedModel(step, capture=partial(recapture, rank))
                for step, rank in zip(others, ranks[1:], strict=True)
            ],
        )

    def of_lengths(base: "Request", lengths: "Sequence[int]") -> "list[CapturedModel]":
        every = [msgspec.structs.replace(base, tokens=each) for each in lengths]
        if base.has_pipeline:
            return [model_of(asked, captured_ranks(asked, process)) for asked in every]
        steps = captured_with_notice(every, process=process)
        return [model_of(asked, (step,)) for asked, step in zip(every, steps, strict=True)]

    def in_loop(base: "Request", loop: "Loop", batch_size: int) -> CapturedModel | None:
        changes = {**loop.changes, "batch_size": batch_size}
        asked = msgspec.convert(msgspec.to_builtins(base) | changes, Request)
        try:
            return model_of(asked, captured_with_notice((asked,), process=process))
        except CaptureError:
            return None

    def for_capability(capability: tuple[int, int]) -> CapturedModel:
        asked = msgspec.structs.replace(request, compute_capability=capability)
        return model_of(asked, captured_ranks(asked, process))

    if request.captures_all:
        request = msgspec.structs.replace(request, accumulate=rounds)
    model = model_of(request, captured_ranks(request, process))
    # What runs here is the same for no two cards.
    alike = (lambda *_: False) if request.runs else captured_alike
    by_card = ModelsByCard(model, request.compute_capability, for_capability, alike)

    def captured_for(server: "Server") -> CapturedModel:
        return by_card.of(for_card(request, server).compute_capability)

    model.capture_card = captured_for
    scenario = scenario_on_any(model, request.short_name, profiles, policies, execution)
    return ScenarioInput(replace(scenario, memory_model=memory_model), types, Path(), captured_for=captured_for)


def _execution(name: str) -> "Execution":
    from vdnnsim.engine.host import Execution
    from vdnnsim.files.value import Entry

    named = Entry("", "--execution", name, InputError)
    if name == "reduce-overhead":
        raise named.expected(
            "'compiled': the memory that CUDA graphs share is not captured. Time is that of a step of `vdnnsim capture "
            "--compile` in a scenario with `execution: cuda_graphs`, memory that of a script under `vdnnsim pretend`"
        )
    return named.choice(Execution, "a way of execution")


def _source(request: "Request", captured: "CapturedStep | list[CapturedStep]") -> tuple[str, str]:
    """Return the name and the SHA-256 of what was captured."""
    import msgspec

    return f"{request.model}, captured", hashlib.sha256(msgspec.json.encode(captured)).hexdigest()


def checked_rounds(accumulate: int | None, request: "Request") -> int:
    """Return how many micro-batches make an iteration, or raise InputError."""
    from vdnnsim.dnn.captured_model import MOST_ROUNDS
    from vdnnsim.dnn.workload import Mode

    if accumulate is None:
        return 1
    if not 1 <= accumulate <= MOST_ROUNDS:
        raise InputError(f"--accumulate: found {accumulate}, expected an integer from 1 to {MOST_ROUNDS}")
    if accumulate > 1 and request.mode is Mode.INFERENCE:
        raise InputError(
            f"--accumulate: found {accumulate} in inference, which has no gradients; expected no such option"
        )
    return accumulate
