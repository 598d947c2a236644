# ruff: noqa: INP001  # Python imports it by this name from a folder on its path, never as part of a package
"""Runs when the Python of a user's script starts, whose PYTHONPATH names this folder first; see `vdnnsim apply`.

It gives way to the `sitecustomize` that would have run without it, and waits for PyTorch to be imported.
"""

import importlib
import json
import os
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent


def _run_the_other() -> None:
    """Run the `sitecustomize` that this one hides, which then stands in its place."""
    own = sys.modules.pop("sitecustomize", None)
    sys.path[:] = [each for each in sys.path if Path(each or ".").resolve() != _HERE]
    try:
        # Another one, for this folder is no longer looked into.
        importlib.import_module("sitecustomize")
    except ImportError:
        if own is not None:
            sys.modules["sitecustomize"] = own


def _wait_for_pytorch(asked: str) -> None:
    try:
        from calibration.pretend.inside.begin import when_pytorch_is_imported
    except ImportError:
        sys.stderr.write(f"vdnnsim: {sys.executable} finds no vdnnsim, expected it in the environment of the script\n")
        return

    def imported() -> None:
        from vdnnsim.api.script import follow_script

        follow_script(**json.loads(asked))

    when_pytorch_is_imported(imported)


_run_the_other()
if "VDNNSIM_APPLY" in os.environ:
    _wait_for_pytorch(os.environ["VDNNSIM_APPLY"])
