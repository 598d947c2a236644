# ruff: noqa: INP001  # Python imports it by this name from a folder on its path, never as part of a package
"""Start-up of the Python of a user's command, first on its PYTHONPATH, for `vdnnsim pretend` and `vdnnsim apply`.

It runs the `sitecustomize` that it hides, and starts recording or planning when PyTorch is imported. The recorder is
loaded under a name of its own, so that it hides no module of the user's; it needs only the standard library and
PyTorch, since this Python may be of another environment than vdnnsim's.
"""

import importlib.util
import json
import os
import pkgutil
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType

_HERE = Path(__file__).resolve().parent


def _run_the_other() -> None:
    """Run the `sitecustomize` that this one hides."""
    elsewhere = [each for each in sys.path if Path(each or ".").resolve() != _HERE]
    other = PathFinder.find_spec("sitecustomize", elsewhere)
    if other is not None and other.loader is not None:
        module = importlib.util.module_from_spec(other)
        sys.modules["sitecustomize"] = module
        other.loader.exec_module(module)


def _load_from_inside(module: str) -> ModuleType:
    folder = _HERE.parent / "pretend" / "inside"
    name = "vdnnsim_pretend_inside"
    if name in sys.modules:
        return importlib.import_module(f"{name}.{module}")
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None, "a file that is there has a specification"
    assert spec.loader is not None, "as above"
    package = importlib.util.module_from_spec(spec)
    sys.modules[name] = package
    spec.loader.exec_module(package)
    return importlib.import_module(f"{name}.{module}")


def _record() -> None:
    # This module imports PyTorch.
    _load_from_inside("recording").record_from_first_use(Path(os.environ["VDNNSIM_PRETEND_SESSION"]))


def _follow_script() -> None:
    if importlib.util.find_spec("vdnnsim") is None:
        sys.stderr.write(f"vdnnsim: {sys.executable} finds no vdnnsim, expected it in the environment of the script\n")
        return
    pkgutil.resolve_name(os.environ["VDNNSIM_APPLY_BY"])(**json.loads(os.environ["VDNNSIM_APPLY"]))


if os.environ.get("VDNNSIM_PRETEND_CLOCK") == "virtual":
    _load_from_inside("clock").follow_virtual_clock()
if "VDNNSIM_PRETEND_SESSION" in os.environ:
    _load_from_inside("imports").when_imported("torch", _record)
if "VDNNSIM_APPLY" in os.environ:
    _load_from_inside("imports").when_imported("torch", _follow_script)
_run_the_other()
