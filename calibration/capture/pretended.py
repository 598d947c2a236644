"""On which card a process captures that captures on a pretended GPU."""

import os
from collections.abc import Mapping
from pathlib import Path

from calibration.pretend.build import build_runtime, find_torch
from calibration.pretend.card import card_of
from calibration.pretend.environment import environment, with_enough_memory
from vdnnsim.hardware.profile import find_profile, read_profile


def variables_of(hardware: str) -> Mapping[str, str]:
    """Return the environment of a process whose PyTorch finds the card of a profile.

    Args:
        hardware: name or path of the profile.

    Raises:
        ProfileError: there is no such profile, or no card can be made of it.
        DeviceError: PyTorch is absent or built without CUDA, or the pretended runtime cannot be compiled.
    """
    card = card_of(read_profile(find_profile(hardware, Path())))
    told = environment(card, build_runtime(find_torch()), inherited=os.environ)
    # What is captured does not hang on whether it fits.
    return with_enough_memory({**os.environ, **told})
