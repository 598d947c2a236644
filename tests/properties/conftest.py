"""Properties replay the same lines thousands of times; counting these again would take longer than the replays do."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave coverage to the tests that were written for it; it is complete without properties."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.no_cover)
