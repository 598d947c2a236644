"""Settings of all tests: equal examples in every run, one thread, Ctrl-C as on a terminal, golden files."""

import gc
import os
import signal
import sys
import warnings
from collections import Counter
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from slipcover import Slipcover  # type: ignore[import-untyped]

import vdnnsim
from vdnnsim.engine.garbage_collection import collect_rarely

if TYPE_CHECKING:
    from calibration.capture.isolation import Answer
    from calibration.capture.request import Request

# Derandomized, so that a red run stays red; no deadline, for workers may share a core. `--hypothesis-profile thorough`
# looks for new examples.
settings.register_profile(
    "gate", max_examples=40, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("gate"), max_examples=1000, derandomize=False)
settings.load_profile("gate")

# It reads the variables of every frame, and so keeps alive what tests expect to be freed.
Slipcover.deinstrument_seen = lambda _: None

# Read by PyTorch here and in processes of tests: one thread is fastest for small models, and two would spin on a core
# that another test could use.
os.environ["OMP_NUM_THREADS"] = "1"

# Output is as wide as in a pipe of its own, whatever terminal the tests run in: workers of xdist have the main one's.
os.environ.pop("COLUMNS", None)

# A shell that starts tests in the background has them ignore signals, and every process that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# As the command line does, for tests replay as well.
collect_rarely()


# Before pytest leaves out those that are `thorough`.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    cases = Counter[tuple[Path, str]]()
    for item in items:
        function = item.path, item.nodeid.partition("[")[0]
        if (mark := item.get_closest_marker("sampled")) and cases[function] % mark.args[0]:
            item.add_marker(pytest.mark.thorough)
        cases[function] += 1


@pytest.fixture(autouse=True, scope="module")
def _frozen() -> None:
    """Leave collected tests and what was imported since out of garbage collections: each capture makes two."""
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
    """Import all of PyTorch that captures need."""
    import torch

    vdnnsim.capture(torch.nn.Linear(3, 5), torch.ones(8, 3))


@pytest.fixture
def in_a_fork(monkeypatch: pytest.MonkeyPatch, has_captured: None) -> None:  # noqa: ARG001
    """Capture in a fork of this process; a process of its own takes two seconds to import PyTorch."""
    from calibration.capture import child, isolation

    of_its_own = isolation.CapturingProcess

    class InAFork:
        def answer(self, request: "Request") -> "Answer":
            # PyTorch clears the caches of `DTensor` of all threads, and a fork has not those of others.
            if request.parallel:
                return of_its_own().answer(request)
            with TemporaryFile() as told, warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # no other thread of a test process holds a lock
                if (process := os.fork()) == 0:
                    try:
                        sys.settrace(None)
                        told.write(msgspec.json.encode(next(child.answers((request,)))))
                        told.flush()
                    finally:
                        os._exit(0)
                os.waitpid(process, 0)
                told.seek(0)
                return msgspec.json.decode(told.read(), type=isolation.Answer)

    monkeypatch.setattr(isolation, "CapturingProcess", InAFork)
