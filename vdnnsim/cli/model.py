"""A model of PyTorch in the place of a scenario: `--model my_model.py:make --batch 8 --hardware rtx_4090`.

It is captured as `vdnnsim capture` does it, and again at other batch sizes and in other precisions where a command asks
for them.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from vdnnsim.errors import InputError, ProfileError

if TYPE_CHECKING:
    from calibration.capture.request import Request
    from vdnnsim.dnn.captured_step import CapturedStep
    from vdnnsim.hardware.profile import Profile
    from vdnnsim.hardware.server import Server
    from vdnnsim.memory.choices import MemoryChoice
    from vdnnsim.policies.interface import Policy
    from vdnnsim.policies.registry import PolicyTypes
    from vdnnsim.scenario.scenario import Scenario
    from vdnnsim.units import Precision

Command = TypeVar("Command", bound=Callable[..., Any])

_OPTIONS: Final = (
    click.option("--model", metavar="MODEL", help="A PyTorch model in the place of SCENARIO, as `capture` takes it."),
    click.option("--batch", type=int, metavar="N", help="Of --model: its batch size."),
    click.option("--image", metavar="CxHxW", help="Of --model: sizes of an image, channels first, as 3x224x224."),
    click.option("--tokens", type=int, metavar="T", help="Of --model: of a sequence."),
    click.option("--inputs", metavar="FILE.py:NAME", help="Of --model: makes its arguments for a batch size."),
    click.option("--precision", metavar="NAME", help="Of --model: float32, by default, or as amp_bfloat16."),
    click.option("--optimizer", metavar="NAME", help="Of --model: adamw, by default, or another, or none."),
    click.option(
        "--allocator", metavar="SETTINGS", help="Of --model: as PYTORCH_ALLOC_CONF has them, and cudnn_benchmark:True."
    ),
    click.option("--mode", metavar="MODE", help="Of --model: training, by default, or inference."),
    click.option("--channels-last", is_flag=True, default=None, help="Of --model: images in channels_last memory."),
    click.option("--execution", metavar="NAME", help="Of --model: eager, by default, cuda_graphs or compiled."),
)
_HARDWARE: Final = click.option("--hardware", metavar="NAME", help="Of --model: a hardware profile, by name or path.")
_DEFAULTS: Final = {"precision": "float32", "optimizer": "adamw", "mode": "training"}
_EXECUTION: Final = "eager"
_POLICIES: Final = ("pytorch",)
POLICY: Final = click.option(
    "--policy", "policies", metavar="NAME", multiple=True, help="Of --model: as pytorch; may be given several times."
)


def describes_model(command: Command) -> Command:
    """Give a command the options of a model, which it takes by name, all together; its machine is not among them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def takes_model(command: Command) -> Command:
    """Give a command the options of a model on a machine."""
    return describes_model(_HARDWARE(command))


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command is asked about.

    Attributes:
        folder: beside which or in which profiles are looked up.
        recapture: captures the model in another precision; None where the question is a scenario of a file.
    """

    scenario: "Scenario"
    folder: Path
    recapture: "Callable[[Precision], CapturedStep] | None" = None


def asked_for(path: Path | None, words: Mapping[str, Any], types: "PolicyTypes", policies: Sequence[str]) -> Asked:
    """Return the scenario of a file, or that of a model which is captured now as the words of its options say.

    A model's policies are by default what PyTorch does.

    Raises:
        InputError: both are given, or neither, or something is wrong in either.
    """
    from vdnnsim.hardware.profile import find_profile, load_profile
    from vdnnsim.policies.registry import resolve_policy
    from vdnnsim.scenario.captured import SUFFIX
    from vdnnsim.scenario.read import read_scenario

    refuse_mixture(path, words, policies)
    if path is not None:
        if path.name.endswith(SUFFIX):
            raise InputError(
                f"{path}: is a captured step, expected a scenario that names it as `workload: {{step: {path}}}`"
            )
        return Asked(read_scenario(path, types), path.parent)
    chosen = tuple(resolve_policy(each, types) for each in policies or _POLICIES)
    return asked_model(words, [load_profile(find_profile(words["hardware"], Path()))], chosen)


def refuse_mixture(path: Path | None, words: Mapping[str, Any], policies: Sequence[str] = ()) -> None:
    """Refuse a model beside a file, neither of them, and a model of which something is missing.

    Raises:
        InputError: that is so.
    """
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


def asked_model(words: Mapping[str, Any], profiles: "Sequence[Profile]", policies: "tuple[Policy, ...]") -> Asked:
    """Return the scenario of the model that options describe, captured as PyTorch runs it on the first machine.

    Raises:
        InputError: something is wrong in what is asked, or it cannot be captured.
    """
    import msgspec

    from vdnnsim.dnn.captured_model import CapturedModel
    from vdnnsim.engine.host import Execution
    from vdnnsim.files.value import Entry
    from vdnnsim.scenario.captured import as_executed
    from vdnnsim.study.machines import scenario_on_any

    execution = Entry("", "--execution", words["execution"] or _EXECUTION, InputError).choice(
        Execution, "a way of execution"
    )
    memory_model = allocator_of(words["allocator"] or "")
    request = _request(words, profiles[0].server)

    def again(**changes: Any) -> "CapturedStep":  # noqa: ANN401  # of the request
        return as_executed(_captured(msgspec.structs.replace(request, **changes)), execution)

    step = again()
    source = f"{request.model}, captured", hashlib.sha256(msgspec.json.encode(step)).hexdigest()
    model = CapturedModel(step, sources=(source,), capture=lambda batch_size: again(batch_size=batch_size))
    scenario = scenario_on_any(model, request.short_name, profiles, policies, execution)
    return Asked(replace(scenario, memory_model=memory_model), Path(), lambda precision: again(precision=precision))


def allocator_of(settings: str) -> "MemoryChoice":
    """Return PyTorch's allocator as `--allocator` sets it.

    Raises:
        InputError: a setting is wrong.
    """
    from vdnnsim.memory.choices import allocator

    try:
        return allocator(settings)
    except InputError as failure:
        raise InputError(f"--allocator: {failure}") from None


def _request(words: Mapping[str, Any], server: "Server") -> "Request":
    import msgspec

    from calibration.capture.request import Request, parse_image
    from vdnnsim.dnn.workload import Mode
    from vdnnsim.files.value import Entry
    from vdnnsim.units import Precision

    said = {name: default if words[name] is None else words[name] for name, default in _DEFAULTS.items()}
    request = Request(
        model=words["model"],
        batch_size=words["batch"],
        image=None if words["image"] is None else parse_image(words["image"]),
        tokens=words["tokens"],
        inputs=words["inputs"],
        mode=Entry("", "--mode", said["mode"], InputError).choice(Mode, "a mode"),
        precision=Entry("", "--precision", said["precision"], InputError).choice(Precision, "a precision"),
        optimizer=said["optimizer"],
        channels_last=bool(words["channels_last"]),
    )
    request.check()
    capability = compute_capability(server)
    return request if capability is None else msgspec.structs.replace(request, compute_capability=capability)


def compute_capability(server: "Server") -> tuple[int, int] | None:
    """Return that of a machine's GPU; None where nothing is known of its chip."""
    from calibration.pretend.card import card_of

    try:
        major, _, minor = card_of(server).compute_capability.partition(".")
    except ProfileError:
        return None
    return int(major), int(minor)


def _captured(request: "Request") -> "CapturedStep":
    from calibration.capture.isolation import captured

    step, kept = captured(request)
    if kept is None:
        told = f"captured {request.model} at a batch of {request.batch_size} in {request.precision.value}"
        click.echo(told, err=True)
    return step
