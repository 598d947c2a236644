"""`vdnnsim check`: one line on a scenario, profile or captured step, without a replay."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

from vdnnsim.cost.kernel_table import describe_kernels, read_measured_kernels
from vdnnsim.cost.model import checked_profile
from vdnnsim.cost.rate_origins import rate_origins
from vdnnsim.cost.trust import OVER_PEAKS, Basis, basis_of
from vdnnsim.dnn.captured_file import read_captured_step
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.dnn.samples import sample_of
from vdnnsim.errors import InputError, PolicyError
from vdnnsim.files.messages import file_name
from vdnnsim.files.yaml_file import FileKind, kind_of, read_yaml
from vdnnsim.hardware.server import Origin, Server
from vdnnsim.policies.registry import PolicyTypes
from vdnnsim.scenario.captured import SUFFIX
from vdnnsim.scenario.read import read_scenario
from vdnnsim.scenario.scenario import Scenario
from vdnnsim.units import format_bytes


def check_file(path: Path, policy_types: PolicyTypes, of_machine: Callable[[Server], str] = lambda _: "") -> str:
    """Return one line about a valid scenario, profile, with what `of_machine` knows of it, or captured step.

    Raises:
        InputError: something in the file is wrong.
    """
    if path.name.endswith(SUFFIX):
        return _check_step(path)
    if kind_of(read_yaml(path, InputError).root) is FileKind.PROFILE:
        return _check_profile(path, of_machine)
    scenario = read_scenario(path, policy_types)
    labels, misfits = ", ".join(policy.label for policy in scenario.policies), refuse_misfits(path, scenario)
    workload = scenario.workload
    several = f" with {scenario.gpus} GPUs" if scenario.gpus > 1 else ""
    return (
        f"{file_name(path)}: a scenario: {workload.graph.name} ({workload.batch_size}), {workload.precision.value}, "
        f"{workload.mode.value} on {scenario.server.name}{several}, under {labels}"
        + "".join(f"; no plan: {each}" for each in misfits)
    )


def refuse_misfits(path: Path, scenario: Scenario) -> list[str]:
    """Return which policies of a scenario, read from `path`, have no plan and why, as far as known without planning.

    Raises:
        PolicyError: none has a plan.
    """
    reasons = (policy.misfit(scenario.workload, scenario.memory_model) for policy in scenario.policies)
    numbered = zip(scenario.policies, reasons, strict=True)
    lines = [f"policies[{at}]: {policy.label}: {why}" for at, (policy, why) in enumerate(numbered) if why]
    if len(lines) == len(scenario.policies):
        raise PolicyError(f"{file_name(path)}: {lines[0]}")
    return lines


def _expectations(server: Server) -> list[str]:
    """Return the expected error of a machine whose kernels were neither measured nor fitted."""
    expected = {
        Basis.DATASHEET: "no kernel was timed, so steps take what its maker's peaks allow: real ones take "
        f"{OVER_PEAKS[0]:g} to {OVER_PEAKS[1]:g} times as long",
        Basis.CARRIED_OVER: "no kernel was timed, and its cost model is that of another card: how far steps are off is "
        "not known, but for those that `vdnnsim machines` says",
    }
    states_any = any(each.path.startswith("cost_model.") for each in server.figures)
    if not states_any or Origin.FITTED in rate_origins(server).values():
        return []
    return [expected[basis]] if (basis := basis_of(server)) in expected else []


def _check_step(path: Path) -> str:
    step, _ = read_captured_step(path)
    workload = CapturedWorkload.of(step)
    sample = sample_of(workload.graph)
    samples = f"{step.batch_size} {sample.name if step.batch_size == 1 else sample.names}{sample.length}"
    return (
        f"{file_name(path)}: a captured step: {step.model}, {samples}, "
        f"{step.precision.value}, {step.mode.value}, {step.optimizer}, as {step.device} by {step.framework}: "
        f"{len(step.operations)} operations in {len(workload.graph.layers)} layers, "
        f"{format_bytes(step.saved_bytes)} saved for backward, {format_bytes(step.peak_live_bytes)} at most alive"
    )


def _check_profile(path: Path, of_machine: Callable[[Server], str]) -> str:
    server = checked_profile(path).server
    origins = Counter(figure.origin.value for figure in server.figures)
    counted = ", ".join(f"{count} {origin}" for origin, count in origins.most_common())
    machine = f"{server.gpu.name} with {format_bytes(server.gpu.memory_bytes)} behind {server.link.name}"
    parts = [f"{file_name(path)}: a hardware profile: {machine}", f"{len(server.figures)} figures: {counted}"]
    parts += filter(None, (of_machine(server),))
    if server.topology is not None:
        cluster = f" in each of {server.hosts} hosts" * bool(server.hosts)
        parts.append(f"{server.gpu_count} GPU{'s' * (server.gpu_count > 1)}{cluster}")
    if server.is_pretended:
        parts.append("of a pretended GPU with given times: nothing was measured on a card")
    if server.kernels is not None:
        rows = read_measured_kernels(server.kernels)
        parts.append(f"{len(rows)} kernels of {len({row.shape for row in rows})} shapes: {describe_kernels(rows)}")
    elif not server.cost_model:
        parts.append("neither kernels nor a cost_model: cannot be simulated")
    parts += _expectations(server)
    if server.link.copies is not None:
        sizes = (f"{len(curve) or 'no'} sizes {way.value}" for way, curve in server.link.copies.curves.items())
        parts.append(f"copies of {', '.join(sizes)}")
    if server.provenance:
        parts.append(", ".join(f"{name} {text}" for name, text in server.provenance))
    return "; ".join(parts)
