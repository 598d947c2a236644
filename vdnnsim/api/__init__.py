"""The Python functions of `vdnnsim`, as its commands; PyTorch is imported only when needed.

`capture` records a model, `simulate` replays it, `plan` makes a plan for its loop (`planning`, `model_plan`), `load`
reads scenarios and studies, `machines`, `max_batch`, `whatif` and `parallel` ask about either (`questions`), `validate`
compares replays to a device. `script` is run by `vdnnsim apply` within a script. Only `vdnnsim` and `vdnnsim.cli`
import it; begin with `scenarios` or `planning`.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from vdnnsim.api.captured import Captured, capture
from vdnnsim.api.planning import Planned, plan
from vdnnsim.api.questions import machines, max_batch, parallel, whatif
from vdnnsim.api.scenarios import LoadedScenario, Simulation, simulate
from vdnnsim.api.study import LoadedStudy, StudyResults
from vdnnsim.api.validation import ValidationResults, validate

__all__ = [
    "Captured",
    "LoadedScenario",
    "LoadedStudy",
    "Planned",
    "Simulation",
    "StudyResults",
    "ValidationResults",
    "capture",
    "load",
    "machines",
    "max_batch",
    "parallel",
    "plan",
    "simulate",
    "validate",
    "whatif",
]


def load(path_or_name: str | Path, policy_module: str | Sequence[str] = ()) -> LoadedScenario | LoadedStudy | Captured:
    """Read a scenario, a study or a captured step, by path or by the name of one that comes with vdnnsim.

    Args:
        path_or_name: of the file.
        policy_module: name of a module with policies of your own that the file names, or several.

    Returns:
        a `LoadedScenario` or a `LoadedStudy`, to `run`; or the step, for `simulate`.

    Raises:
        InputError: it cannot be read, is invalid, or there is none of this name.
    """
    from vdnnsim.dnn.captured_file import read_captured_step
    from vdnnsim.files.packaged import SCENARIOS, STUDIES, find_file
    from vdnnsim.policies.registry import known_policies
    from vdnnsim.scenario.captured import SUFFIX
    from vdnnsim.scenario.read import read_scenario
    from vdnnsim.study.read import is_study, read_study

    path = find_file(str(path_or_name), (SCENARIOS, STUDIES))
    if path.name.endswith(SUFFIX):
        return Captured(**msgspec.structs.asdict(read_captured_step(path)[0]))
    types = known_policies([policy_module] if isinstance(policy_module, str) else policy_module)
    if is_study(path):
        return LoadedStudy(read_study(path, types))
    return LoadedScenario(read_scenario(path, types), path.parent)


def __dir__() -> list[str]:
    """Return what users call, for completion."""
    return __all__
