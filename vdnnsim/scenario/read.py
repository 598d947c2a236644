"""Reading a scenario file.

    schema_version: 1
    workload: {network: vgg416, batch_size: 32, precision: float32}
    hardware: titan_x_maxwell
    policies: [base(p), vdnn_dyn, {policy: vdnn_all, algorithms: m}]

Optional are `workload.optimizer` (none), `workload.mode` (training), `workload.tokens` of a sequence (the network's),
`memory_model` (ideal), `pinned_memory` (arena), `execution` (eager), `gpus` (1) and, where several GPUs train,
`gradients` (cpu). The workload may be a captured model (`vdnnsim.scenario.captured`), whose default `memory_model` is
PyTorch's. Everything is checked here: what `read_scenario` returns can be simulated.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from vdnnsim.cost.machine import lacking_peak
from vdnnsim.cost.model import ServerCosts, checked_profile
from vdnnsim.cost.ranks import machine_of_rank
from vdnnsim.dnn.captured_model import CapturedModel
from vdnnsim.dnn.graph import LayerGraph
from vdnnsim.dnn.networks import NETWORK_NAMES, build_network
from vdnnsim.dnn.workload import Mode, Optimizer, Workload
from vdnnsim.engine.host import Execution
from vdnnsim.errors import InputError, PolicyError, ProfileError, ScenarioError
from vdnnsim.files.messages import one_line, printable, quote
from vdnnsim.files.packaged import shipped_name
from vdnnsim.files.value import Entry
from vdnnsim.files.yaml_file import FileKind, YamlFile, read_yaml
from vdnnsim.hardware.profile import Profile, find_profile
from vdnnsim.memory.choices import MemoryChoice, MemoryModel, PinnedMemory, read_memory_model, settings_of
from vdnnsim.plans.operations import Aggregation
from vdnnsim.policies.interface import Policy
from vdnnsim.policies.registry import PolicyTypes, known_policies, resolve_policy
from vdnnsim.scenario.captured import MEMORY_MODEL, STEP, TOKENS, check_fused, is_captured, read_captured
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.units import ElementType, Precision

SCHEMA_VERSION: Final = 1
LARGEST_BATCH: Final = 1_000_000
MOST_TOKENS: Final = 2**20
LONGEST_POLICY: Final = 300
_REQUIRED = ("network", "batch_size")
_OPTIONAL = ("precision", "element_type", "optimizer", "mode", TOKENS)
_CHOICES = ("memory_model", "pinned_memory", "execution", "gpus", "gradients")
MOST_GPUS: Final = 1000


def read_scenario(path: Path, policy_types: PolicyTypes | None = None) -> Scenario:
    """Read a scenario and the profile that it names.

    Raises:
        ScenarioError: the file cannot be read, or something in it is wrong.
        ProfileError: there is no such profile, or something in it is wrong.
        PolicyError: a policy or an option of a policy does not exist.
    """
    file = read_yaml(path, ScenarioError, FileKind.SCENARIO)
    return resolve_scenario(file, file.root, path, policy_types)


def resolve_scenario(file: YamlFile, entry: Entry, path: Path, policy_types: PolicyTypes | None = None) -> Scenario:
    """Resolve a scenario that is a whole file or, in a study, a part of one.

    The scenario is named by `path`, beside which profiles are looked up. It raises what `read_scenario` does.
    """
    entry.check_schema_version(SCHEMA_VERSION)
    keys = entry.members(("schema_version", "workload", "hardware", "policies"), _CHOICES)
    execution = Execution.EAGER
    if "execution" in keys:
        execution = keys["execution"].choice(Execution, "a way of execution")
    captured, workload = _workload(keys["workload"], path.parent, execution)
    check_fused(execution, captured, keys.get("execution", entry))
    policies = _policies(keys["policies"], known_policies() if policy_types is None else policy_types)
    memory_model: MemoryChoice = MEMORY_MODEL if captured else MemoryModel.IDEAL
    pinned_memory = PinnedMemory.ARENA
    if "memory_model" in keys:
        memory_model = read_memory_model(keys["memory_model"])
        settings = settings_of(memory_model)
        if captured is None and settings is not None and settings.cudnn_benchmark:
            raise keys["memory_model"].wrong(
                "cudnn_benchmark: found a built network, whose first iteration is not modelled; expected a captured "
                f"model, `workload: {{{STEP}: ...}}`"
            )
    if "pinned_memory" in keys:
        pinned_memory = keys["pinned_memory"].choice(PinnedMemory, "a way to pin memory")
    profile = _profile(keys["hardware"], path.parent)
    if lacking := lacking_peak(profile.called, profile.server, workload.element_type):
        named = keys["workload"].named_members("keys")
        said_by = [named[name] for name in ("precision", "element_type", STEP) if name in named]
        raise (said_by or [keys["workload"]])[0].wrong(lacking)
    # Messages name it.
    ServerCosts(replace(profile.server, name=profile.called)).of_type(workload.element_type)
    gpus = _gpus(keys["gpus"], profile) if "gpus" in keys else 1
    server = profile.server if captured is None else machine_of_rank(profile.called, profile.server, captured.base)
    ranks = 1 if captured is None else captured.base.ranks
    if captured is not None and captured.others:
        if "gpus" in keys:
            raise keys["gpus"].wrong("is given beside the ranks of a pipeline, expected no such key")
        gpus = 1 + len(captured.others)
    elif ranks > 1 and gpus not in {1, ranks}:
        raise keys["gpus"].wrong(
            f"found {gpus}, expected {ranks} to simulate each rank, or none for one that is as all"
        )
    return Scenario(
        name=printable(path.stem),
        workload=workload,
        server=server,
        policies=policies,
        memory_model=memory_model,
        pinned_memory=pinned_memory,
        sources=((shipped_name(file.name), file.sha256), *(captured.sources if captured else ()), *profile.sources),
        gpus=gpus,
        gradients=_gradients(keys.get("gradients"), gpus if ranks == 1 else 1, workload.mode),
        captured=captured,
        execution=execution,
    )


def _workload(entry: Entry, folder: Path, execution: Execution) -> tuple[CapturedModel | None, Workload]:
    if is_captured(entry):
        return read_captured(entry, folder, (*_REQUIRED, *_OPTIONAL), LARGEST_BATCH, execution)
    keys = entry.members(_REQUIRED, _OPTIONAL)
    optimizer, mode = Optimizer.NONE, Mode.TRAINING
    if "optimizer" in keys:
        optimizer = keys["optimizer"].choice(Optimizer, "an optimizer")
    if "mode" in keys:
        mode = keys["mode"].choice(Mode, "a mode")
    if mode is Mode.INFERENCE and optimizer is not Optimizer.NONE:
        raise keys["optimizer"].expected("'none', for inference updates no weights")
    graph, batch_size = _network(keys["network"], keys.get(TOKENS)), keys["batch_size"].integer(1, LARGEST_BATCH)
    return None, Workload.in_precision(graph, batch_size, _precision(keys), optimizer, mode)


def _precision(keys: Mapping[str, Entry]) -> Precision:
    """Return the precision, or that of the old key `element_type`."""
    if "precision" in keys and "element_type" in keys:
        raise keys["element_type"].wrong("is given beside 'precision', expected one of the two")
    if "element_type" in keys:
        return Precision(keys["element_type"].choice(ElementType, "an element type").value)
    return keys["precision"].choice(Precision, "a precision") if "precision" in keys else Precision.FLOAT32


def _network(entry: Entry, tokens: Entry | None) -> LayerGraph:
    if not isinstance(entry.value, str):
        raise entry.expected(f"a network: {', '.join(NETWORK_NAMES)}")
    try:
        return build_network(entry.value, None if tokens is None else tokens.integer(1, MOST_TOKENS))
    except ScenarioError:
        raise
    except InputError as failure:
        raise (tokens or entry).wrong(str(failure)) from None


def _policies(entry: Entry, types: PolicyTypes) -> tuple[Policy, ...]:
    policies: list[Policy] = []
    labels: dict[str, Entry] = {}
    for item in entry.items("policies"):
        if not isinstance(item.value, str | dict) or len(repr(item.value)) > LONGEST_POLICY:
            raise item.expected("a policy as vdnn_all(m), or a short mapping with the key policy and its options")
        try:
            policy = resolve_policy(item.value, types)
        except PolicyError as failure:
            raise PolicyError(str(item.wrong(one_line(str(failure))))) from None
        if policy.label in labels:
            raise item.wrong(f"{quote(policy.label)} is in {labels[policy.label].path} already, expected it once")
        labels[policy.label] = item
        policies.append(policy)
    return tuple(policies)


def _gpus(entry: Entry, profile: Profile) -> int:
    there = profile.server.gpu_count
    gpus = entry.integer(1, MOST_GPUS)
    if gpus > there:
        raise entry.wrong(f"found {gpus}, but {profile.file} has {f'{there} GPUs' if there > 1 else 'one GPU'}")
    return gpus


def _gradients(entry: Entry | None, gpus: int, mode: Mode) -> Aggregation | None:
    """Return how gradients are added up, by the CPU unless stated."""
    alone = gpus == 1 or mode is Mode.INFERENCE
    if entry is None:
        return None if alone else Aggregation.CPU
    aggregation = entry.choice(Aggregation, "a way to add up gradients")
    if alone:
        why = "inference has no gradients" if mode is Mode.INFERENCE else "a GPU alone exchanges none"
        raise entry.wrong(f"found {aggregation.value!r}, but {why}; expected no such key")
    return aggregation


def _profile(entry: Entry, folder: Path) -> Profile:
    if not isinstance(entry.value, str):
        raise entry.expected("the name of a hardware profile, or a path that ends in .yaml")
    try:
        path = find_profile(entry.value, folder)
    except ProfileError as failure:
        raise ProfileError(str(entry.wrong(str(failure)))) from None
    return checked_profile(path)
