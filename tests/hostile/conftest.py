"""Attacks read the same files hundreds of times; counting lines again would take longer than the reading does."""

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave coverage to the tests that were written for it; it is complete without attacks."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.no_cover)
