"""In what a device differs from the one that a profile was measured on."""

from typing import Final

from vdnnsim.hardware.server import Server

Provenance = tuple[tuple[str, str], ...]

_PASSING: Final = ("date", "sm_clock", "memory_clock", "pcie")
"""What changes from one run to the next on the same machine, for a GPU at rest slows clocks and link down."""


def differences(server: Server, now: Provenance) -> tuple[str, ...]:
    """Return a line for each: what the profile says of its machine and software, and what is here.

    Args:
        server: the machine as its profile describes it.
        now: what the device and its software say of themselves, as (name, text).
    """
    if server.kernels is None:
        return (f"{server.name}: no kernel of this machine was measured, all of its times are predicted",)
    measured, found = ({name: text for name, text in each if name not in _PASSING} for each in (server.provenance, now))
    return tuple(
        f"{name}: {measured.get(name, 'nothing')} in the profile {server.name}, {found.get(name, 'nothing')} here"
        for name in {**measured, **found}
        if measured.get(name) != found.get(name)
    )
