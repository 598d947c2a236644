"""Machines that are shipped, by the names of their profiles."""

from functools import cache

from tests.toy import ROOT
from vdnnsim.hardware.profile import Profile, load_profile
from vdnnsim.hardware.server import Server


@cache
def shipped_profile(name: str) -> Profile:
    return load_profile(ROOT / "hw_profiles" / f"{name}.yaml")


def shipped_server(name: str) -> Server:
    return shipped_profile(name).server
