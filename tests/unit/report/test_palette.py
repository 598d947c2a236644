"""Colours of memory and copies, as readers with full and with less colour vision see them."""

import numpy as np
import pytest
from numpy.typing import NDArray

from vdnnsim.plans.training_plan import BufferKind
from vdnnsim.report.palette import KIND_COLORS, OFFLOAD

# Machado, Oliveira and Fernandes, IEEE TVCG 15(6), 2009: what is seen of linear RGB without one kind of cones.
VISIONS = {
    "full": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
EASY = 40
"""Distance in CIELAB; 2 is just noticed, and yellow was 11 from orange."""


def lab(color: str, vision: object) -> NDArray[np.float64]:
    """Return a colour in CIELAB under D65, as a vision sees it."""
    coded = np.array([int(color[start : start + 2], 16) for start in (1, 3, 5)]) / 255
    linear = np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.asarray(vision) @ linear, 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(to_xyz @ seen / (0.9505, 1, 1.089))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("vision", VISIONS)
def test_workspaces_and_offloads_are_easy_to_tell_apart(vision: str) -> None:
    one, other = (lab(color, VISIONS[vision]) for color in (KIND_COLORS[BufferKind.WORKSPACE], OFFLOAD))
    assert np.linalg.norm(one - other) > EASY
