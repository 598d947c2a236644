"""Writes what the site takes from elsewhere: the reference that the code states, and the limits."""

import inspect
import re
from collections.abc import Iterable, Sequence
from enum import Enum
from pathlib import Path

import vdnnsim.api
from vdnnsim.analysis.columns import COLUMNS
from vdnnsim.dnn.networks import NETWORKS
from vdnnsim.dnn.networks.families import FAMILIES
from vdnnsim.dnn.workload import Mode, Optimizer
from vdnnsim.engine.host import Execution
from vdnnsim.hardware.figures import FIGURES
from vdnnsim.hardware.profile import shipped_profiles
from vdnnsim.memory.choices import MemoryModel, PinnedMemory
from vdnnsim.plans.operations import Aggregation
from vdnnsim.policies.registry import describe_options, known_policies
from vdnnsim.study.axes import study_keys
from vdnnsim.units import Precision, format_bytes

CHOICES: tuple[tuple[str, type[Enum]], ...] = (
    ("workload.precision", Precision),
    ("workload.optimizer", Optimizer),
    ("workload.mode", Mode),
    ("memory_model", MemoryModel),
    ("pinned_memory", PinnedMemory),
    ("execution", Execution),
    ("gradients", Aggregation),
)


def write_reference(folder: Path) -> None:
    """Write every page that changed, so that Sphinx reads no other again."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in PAGES.items():
        path = folder / f"{name}.md"
        content = text()
        if not path.is_file() or path.read_text(encoding="utf-8") != content:
            path.write_text(content, encoding="utf-8")


def choices() -> str:
    """Return what the keys of a scenario may be, with what their enums say of themselves."""
    parts = []
    for key, enum in CHOICES:
        names = ", ".join(f"`{each.value}`" for each in enum)
        parts.append(f"**`{key}`**: {names}\n\n{_words(enum)}\n")
    return "\n".join(parts)


def policies() -> str:
    """Return every policy, what it does and its options, the default first."""
    rows = ((f"`{name}`", each.summary, describe_options(each)) for name, each in known_policies().items())
    return _table(("policy", "what it does", "options"), rows)


def networks() -> str:
    """Return the networks that are built here."""
    families = ", ".join(f"`{family.name}` ({family.members})" for family in FAMILIES)
    return f"{', '.join(f'`{name}`' for name in NETWORKS)}; and of families: {families}.\n"


def figures() -> str:
    """Return every figure that a profile may have."""
    rows = ((f"`{each.path}`", each.stated.words, each.stated.range.dimension.suffix) for each in FIGURES)
    return _table(("key", "what it is", "inside, in"), rows)


def machines() -> str:
    """Return the machines that come with vdnnsim."""
    servers = ((each.server, each.description) for each in shipped_profiles())
    rows = ((f"`{one.name}`", one.gpu.name, format_bytes(one.gpu.memory_bytes), text) for one, text in servers)
    return _table(("name", "GPU", "memory", "what it is"), rows)


def axes() -> str:
    """Return every key that a study can vary."""
    names = (f"`{name}`" for name in study_keys(known_policies(), Path()))
    return f"{', '.join(names)}.\n"


def columns() -> str:
    """Return every column of results."""
    rows = ((f"`{each.name}`", each.scope.value, each.meaning) for each in COLUMNS.values())
    return _table(("column", "of", "definition"), rows)


def api() -> str:
    """Return what a notebook calls, and below it what that returns."""
    public = {name: getattr(vdnnsim.api, name) for name in vdnnsim.api.__all__}
    functions = "".join(
        f".. autofunction:: vdnnsim.{name}\n" for name, each in public.items() if inspect.isfunction(each)
    )
    classes = "".join(
        f".. autoclass:: vdnnsim.api.{name}\n   :members:\n"
        for name, each in public.items()
        if not inspect.isfunction(each)
    )
    return f"```{{eval-rst}}\n{functions}```\n\n## What they return\n\n```{{eval-rst}}\n{classes}```\n"


def limits() -> str:
    """Return what stands beside the README, with links as files of a site have them."""
    text = (Path(__file__).parents[1] / "LIMITS.md").read_text(encoding="utf-8")
    return text.replace("](reports/", "](path:../reports/")


PAGES = {each.__name__: each for each in (choices, policies, networks, figures, machines, axes, columns, api, limits)}


def _words(enum: type[Enum]) -> str:
    """Return what an enum says of its members: a sentence of its docstring for each, or its first where that is all."""
    lines = (inspect.getdoc(enum) or "").splitlines()
    told = " ".join(lines[2:] if len(lines) > 1 else lines)
    each = re.split(r"(?<=\.) (?=`)", told)
    return told if len(each) == 1 else "\n".join(f"- {sentence}" for sentence in each)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ([cell.replace("|", r"\|") for cell in line] for line in (header, ["---"] * len(header), *rows))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
