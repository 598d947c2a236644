"""What every test shares: equal examples on every run, one thread, Ctrl-C as on a terminal, golden files rewritten."""

import gc
import os
import signal
import sys
import warnings
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Final

import msgspec
import pytest
from hypothesis import HealthCheck, settings

import vdnnsim
from vdnnsim.engine.processes import collect_rarely

if TYPE_CHECKING:
    from calibration.capture.isolation import Answer
    from calibration.capture.request import Request

_TESTS: Final = Path(__file__).parent
COUNTED: Final = tuple(_TESTS / each for each in ("apply", "architecture", "calibration", "claims", "reports", "unit"))
"""Whose tests were written for the lines that coverage counts. To count lines takes twice as long as to run them, so
those that run the same ones again are left out: tests elsewhere, Hypothesis's, what is marked `replay`, and all cases
of a parametrized test behind its first, but of `COMPLETE` rooms, where a case may be there for one line."""
COMPLETE: Final = tuple(_TESTS / "unit" / each for each in ("analysis", "engine", "planning", "plans", "policies"))

# Derandomized, so that a red run stays red; no deadline and no complaint about slowness, for workers may share a core.
# As many examples as the suite has time for; `--hypothesis-profile thorough` looks for new ones.
settings.register_profile(
    "gate", max_examples=40, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("gate"), max_examples=1000, derandomize=False)
settings.load_profile("gate")

# Read by PyTorch where it is imported, here and in what tests start: models of tests are small, and one thread computes
# them sooner than two that wait for each other, by spinning on a core that another test could have.
os.environ["OMP_NUM_THREADS"] = "1"

# Who starts tests in the background has them ignore signals, and so would every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# As the command line does, for tests replay as well.
collect_rarely()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Count no lines of what others count."""
    seen: set[tuple[Path, str]] = set()
    for item in items:
        function = item.path, item.nodeid.partition("[")[0]
        folders = COMPLETE if function in seen else COUNTED
        seen.add(function)
        is_written_for_lines = any(item.path.is_relative_to(each) for each in folders)
        if not is_written_for_lines or item.get_closest_marker("hypothesis") or item.get_closest_marker("replay"):
            item.add_marker(pytest.mark.no_cover)


def pytest_collection_finish() -> None:
    """Leave what was imported and collected out of garbage collections, of which each capture of a step makes two."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tables", metavar="DIR", help="where tests on a pretended GPU write what they compared")
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files instead of comparing")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be rewritten; the changelog then says why they moved."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="session")
def has_captured() -> None:
    """Of PyTorch all is imported that captures need."""
    import torch

    vdnnsim.capture(torch.nn.Linear(3, 5), torch.ones(8, 3))


@pytest.fixture
def in_a_fork(monkeypatch: pytest.MonkeyPatch, has_captured: None) -> None:  # noqa: ARG001
    """What captures a model is a fork of this process; one of its own takes two seconds to import PyTorch."""
    from calibration.capture import child, isolation

    def answer(request: "Request") -> "Answer":
        with TemporaryFile() as told, warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # no other thread of a test process holds a lock
            if (process := os.fork()) == 0:
                try:
                    sys.settrace(None)
                    told.write(msgspec.json.encode(child._answer(request)))  # noqa: SLF001
                    told.flush()
                finally:
                    os._exit(0)
            os.waitpid(process, 0)
            told.seek(0)
            return msgspec.json.decode(told.read(), type=isolation.Answer)

    monkeypatch.setattr(isolation, "_answer_of_child", answer)
