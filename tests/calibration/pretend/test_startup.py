"""The `sitecustomize` that a user's Python runs first, in processes that need no GPU."""

import os
import subprocess
import sys
from pathlib import Path

import calibration.pretend

STARTUP = Path(calibration.pretend.__file__).parents[1] / "startup"


def output_of(program: str, *folders: Path, **variables: str) -> str:
    """Return the output of a program whose Python finds the startup first, then some folders."""
    environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(map(str, (STARTUP, *folders)))}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


def test_the_users_own_modules_are_found_as_without_the_recorder(tmp_path: Path) -> None:
    """Another sitecustomize, and a `peak`, which the recorder has too; nothing of PyTorch is imported."""
    (tmp_path / "sitecustomize.py").write_text("print('mine')")
    (tmp_path / "peak.py").write_text("name = 'mine'")
    program = """
import peak, importlib.util, sys
print(peak.name, importlib.util.find_spec('inside'))
print(any(name.endswith('.recording') for name in sys.modules), 'torch' in sys.modules)
"""
    output = output_of(program, tmp_path, VDNNSIM_PRETEND_SESSION=str(tmp_path))
    assert output == "mine\nmine None\nFalse False\n"


def test_recording_waits_until_pytorch_is_imported(tmp_path: Path) -> None:
    """`find_spec` alone does not start it, as `vdnnsim calibrate` and transformers call it; two callbacks run once."""
    (tmp_path / "torch.py").write_text("print('imported')")
    program = """
import importlib.util
import vdnnsim_pretend_inside.imports as begin, sys
sys.meta_path.remove(sys.meta_path[0])
begin.when_imported('torch', lambda: print('first'))
begin.when_imported('torch', lambda: print('second'))
assert importlib.util.find_spec('torch') is not None
print('found')
import torch
import torch
"""
    assert output_of(program, tmp_path, VDNNSIM_PRETEND_SESSION=str(tmp_path)) == "found\nimported\nfirst\nsecond\n"
