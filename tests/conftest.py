"""What every test shares: equal examples on every run, one thread, Ctrl-C as on a terminal, golden files rewritten."""

import gc
import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from vdnnsim.processes import collect_rarely

# Derandomized, so that a red run stays red; no deadline and no complaint about slowness, for workers may share a core.
settings.register_profile("gate", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("gate")

# Read by PyTorch where it is imported, here and in what tests start: models of tests are small, and one thread computes
# them sooner than two that wait for each other, by spinning on a core that another test could have.
os.environ["OMP_NUM_THREADS"] = "1"

# Who starts tests in the background has them ignore signals, and so would every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# As the command line does, for tests replay as well.
collect_rarely()


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
