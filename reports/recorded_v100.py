"""Two published traces compared: `python -m reports.recorded_v100 OLD.json.gz NEW.json.gz`.

Writes `reports/traces/README.md`. Each trace makes a profile and a workload; each workload is replayed on both
profiles. A workload on the profile of its own trace is marked: it checks only that nothing was lost.
"""

import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from vdnnsim.cost.model import ServerCosts
from vdnnsim.dnn.captured_file import write_captured_step
from vdnnsim.dnn.captured_workload import CapturedWorkload
from vdnnsim.hardware.figures import with_number
from vdnnsim.hardware.profile import read_profile
from vdnnsim.recordings.recorded_profile import write_recorded_profile
from vdnnsim.recordings.recorded_step import WAITS_FOR_COPIES, WAITS_FOR_DATA, RecordedStep, read_step
from vdnnsim.recordings.recorded_workload import captured_step
from vdnnsim.report.markdown import table
from vdnnsim.scenario.experiment import run_scenario
from vdnnsim.scenario.read import read_scenario

_COLUMNS = (
    *("step of", "profile of", "kernels", "recorded kernels", "error"),
    *("step", "at its own host's pace", "recorded step", "errors of both"),
)
REPORT = Path(__file__).parent / "traces" / "README.md"
_TEXT = """# Two traces of one card, held against each other

`python -m reports.recorded_v100 OLD.json.gz NEW.json.gz` writes this page from two traces that pytorch/kineto publishes
with its plugin for TensorBoard (BSD-3, `tb_plugin/samples`): ResNet-50, 32 images, float32, SGD with momentum on a
V100, in two formats of 2021:

- old: `{old_file}`,
  which names neither its GPU nor what backward is of
- new: `{new_file}`,
  on a Tesla V100-DGXS-32GB, with numbers of autograd, stacks and memory

## What is attributed

{attributed}

The rest of the old trace are sums of gradients where the network branches: autograd launches them between its
operators, and only later formats record an operator for them.

## What one tells of the other

Kernels are the time that those of operators ran; the step goes from the end of one update to that of the next, without
waiting for data and for copies between host and GPU, which no profile knows.

{predicted}

- Kernels of the other trace come out to {kernels_worst}. cuDNN ran other kernels for some layers, and the old trace
  has no rows of the sums of gradients.
- Steps come out at {steps}: the GPU waits for its host, and the hosts issued at another pace
  (stacks and memory were recorded with the new trace alone). At the pace of the step's own host (`vdnnsim whatif
  --set host.issue=...`) the errors are the profile's. A profile carries the pace of a host under the profiler: record
  without `with_stack` and `profile_memory`.
- The old step lacks {outside} of kernels that are of no operator, on its own profile, too, and half of the time that
  its GPU waits for its host: a profile has one time for the host to issue an operation, whichever it is.
- Another batch size is not shown: neither of the two traces has one.
"""


def main(old: Path, new: Path) -> None:
    """Write the page of two traces."""
    steps = {"old": read_step(old), "new": read_step(new)}
    with TemporaryDirectory() as folder:
        results = _results(steps, Path(folder))
    attributed = [_attributed(name, step) for name, step in steps.items()]
    predicted = [_predicted(step, profile, *found) for (step, profile), found in results.items()]
    others = {step: found for (step, profile), found in results.items() if step != profile}
    worst = max(abs(found[0] / found[1] - 1) for found in others.values())
    ratios = (f"{found[2] / found[-1] - 1:+.1%} ({step})" for step, found in others.items())
    text = _TEXT.format(
        old_file=old.name,
        new_file=new.name,
        attributed=table(
            ("trace", "step", "kernels", "of operators", "convolutions", "backward of its forward"), attributed, left=1
        ),
        predicted=table(_COLUMNS, predicted, left=2),
        kernels_worst=f"{worst:.1%}",
        steps=" and ".join(ratios),
        outside=f"{(steps['old'].kernel_s - steps['old'].attributed_s) * 1e3:.1f} ms",
    )
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(text)


def _results(steps: dict[str, RecordedStep], folder: Path) -> dict[tuple[str, str], tuple[float, ...]]:
    """Return seconds by step and profile: kernels predicted and recorded, and the step, with its own host, recorded."""
    profiles = folder / "hw_profiles"
    profiles.mkdir()
    write_recorded_profile(profiles / "new.yaml", steps["new"], None)
    write_recorded_profile(profiles / "old.yaml", steps["old"], read_profile(profiles / "new.yaml"))
    found: dict[tuple[str, str], tuple[float, ...]] = {}
    for name, step in steps.items():
        captured = captured_step(step, name)
        write_captured_step(captured, folder / f"{name}.step.json")
        waits = sum(step.idle.get(each, 0.0) for each in (WAITS_FOR_DATA, WAITS_FOR_COPIES))
        for profile in steps:
            costs = ServerCosts(read_profile(profiles / f"{profile}.yaml")).table(CapturedWorkload.of(captured))
            kernels = sum(options[0].seconds for options in costs.kernels.values())
            scenario = folder / f"{name}_{profile}.yaml"
            scenario.write_text(
                f"schema_version: 1\nworkload: {{step: {name}.step.json}}\nhardware: {profile}\npolicies: [base(p)]\n"
            )
            read = read_scenario(scenario)
            own_host = replace(read, server=with_number(read.server, "host.issue", step.issue_s))
            [result], [on_own_host] = run_scenario(read).results, run_scenario(own_host).results
            times = result.metrics.iteration_s, on_own_host.metrics.iteration_s
            found[name, profile] = kernels, step.attributed_s, *times, step.step.seconds - waits
    return found


def _attributed(name: str, step: RecordedStep) -> tuple[str, ...]:
    convolutions = [at for at, each in enumerate(step.operations) if each.name.startswith("convolution")]
    with_sizes = sum(step.works[at].work is not None for at in convolutions)
    backward = [each for each in step.operations if each.name == "convolution_backward"]
    matched = sum(each.forward is not None for each in backward)
    return (
        f"{name}, {step.step.name}",
        f"{step.step.seconds * 1e3:.1f} ms",
        f"{step.kernel_s * 1e3:.1f} ms",
        f"{step.attributed_s / step.kernel_s:.1%}",
        f"{with_sizes} of {len(convolutions)} with sizes and phase",
        f"{matched} of {len(backward)} convolutions",
    )


def _predicted(step: str, profile: str, *times: float) -> tuple[str, ...]:
    kernels, recorded_kernels, whole, on_own_host, recorded_whole = times
    own = " (its own)" if step == profile else ""
    return (
        step,
        f"{profile}{own}",
        f"{kernels * 1e3:.1f} ms",
        f"{recorded_kernels * 1e3:.1f} ms",
        f"{kernels / recorded_kernels - 1:+.1%}",
        f"{whole * 1e3:.1f} ms",
        f"{on_own_host * 1e3:.1f} ms",
        f"{recorded_whole * 1e3:.1f} ms",
        f"{whole / recorded_whole - 1:+.1%}, {on_own_host / recorded_whole - 1:+.1%}",
    )


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
