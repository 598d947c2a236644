"""The `sitecustomize` that a user's Python runs first, in processes that need no GPU."""

import os
import subprocess
import sys
from pathlib import Path

import calibration.pretend

STARTUP = Path(calibration.pretend.__file__).parents[1] / "startup"


def said(program: str, *folders: Path, **variables: str) -> str:
    """Return what a program says whose Python finds the startup first, then some folders."""
    environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join(map(str, (STARTUP, *folders)))}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


def test_the_users_own_sitecustomize_runs_as_well(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('mine')")
    assert said("print('program')", tmp_path) == "mine\nprogram\n"


def test_the_recorder_hides_no_module_of_the_users(tmp_path: Path) -> None:
    """The recorder has a `peak` and a `values`; a user's own are found all the same, and nothing is called inside."""
    (tmp_path / "peak.py").write_text("name = 'mine'")
    program = "import peak, importlib.util; print(peak.name, importlib.util.find_spec('inside'))"
    assert said(program, tmp_path, VDNNSIM_PRETEND_SESSION=str(tmp_path)) == "mine None\n"


def test_a_program_without_pytorch_is_left_alone(tmp_path: Path) -> None:
    program = "import sys; print(any(name.endswith('.recording') for name in sys.modules), 'torch' in sys.modules)"
    assert said(program, VDNNSIM_PRETEND_SESSION=str(tmp_path)) == "False False\n"


def test_recording_waits_for_pytorch_to_be_imported(tmp_path: Path) -> None:
    """A module called torch stands in; of it the recorder wants `cuda._lazy_call`, to be told of the first use."""
    (tmp_path / "torch.py").write_text("print('imported')")
    program = """
import vdnnsim_pretend_inside.start_recording as begin, sys
sys.meta_path.remove(sys.meta_path[0])
sys.meta_path.insert(0, begin._Waiting(lambda: print('said')))
import torch
import torch
"""
    assert said(program, tmp_path, VDNNSIM_PRETEND_SESSION=str(tmp_path)) == "imported\nsaid\n"


def test_what_looks_for_pytorch_without_importing_it_ends_no_wait(tmp_path: Path) -> None:
    """`find_spec` alone, as `vdnnsim calibrate` and transformers begin with, and two that wait, each told once."""
    (tmp_path / "torch.py").write_text("print('imported')")
    program = """
import importlib.util
import vdnnsim_pretend_inside.start_recording as begin, sys
sys.meta_path.remove(sys.meta_path[0])
begin.when_pytorch_is_imported(lambda: print('first'))
begin.when_pytorch_is_imported(lambda: print('second'))
assert importlib.util.find_spec('torch') is not None
print('found')
import torch
import torch
"""
    assert said(program, tmp_path, VDNNSIM_PRETEND_SESSION=str(tmp_path)) == "found\nimported\nfirst\nsecond\n"
