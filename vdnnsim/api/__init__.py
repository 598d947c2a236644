"""What a notebook calls: the words of the command line as functions. PyTorch is imported when one is called."""

from pathlib import Path

import msgspec

from vdnnsim.api.captured import Captured, capture
from vdnnsim.api.planning import Planned, plan
from vdnnsim.api.scenarios import Question, Simulation, simulate
from vdnnsim.api.study import LoadedStudy, StudyResults
from vdnnsim.api.validation import ValidationResults, validate

__all__ = [
    "Captured",
    "LoadedStudy",
    "Planned",
    "Question",
    "Simulation",
    "StudyResults",
    "ValidationResults",
    "capture",
    "load",
    "plan",
    "simulate",
    "validate",
]


def load(path_or_name: str | Path) -> Question | LoadedStudy | Captured:
    """Read a scenario, a study or a captured step, by its path or by the name that it has among those of vdnnsim.

    Returns:
        a `Question` or a `LoadedStudy`, to `run`; or the step, which `simulate` takes.

    Raises:
        InputError: it cannot be read, something in it is wrong, or there is none of this name.
    """
    from vdnnsim.dnn.captured_file import read_captured_step
    from vdnnsim.files.packaged import SCENARIOS, STUDIES, find_file
    from vdnnsim.scenario.captured import SUFFIX
    from vdnnsim.scenario.read import read_scenario
    from vdnnsim.study.read import is_study, read_study

    path = find_file(str(path_or_name), (SCENARIOS, STUDIES))
    if path.name.endswith(SUFFIX):
        return Captured(**msgspec.structs.asdict(read_captured_step(path)[0]))
    return LoadedStudy(read_study(path)) if is_study(path) else Question(read_scenario(path), path.parent)
