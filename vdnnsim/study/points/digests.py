"""Digests of what decides the result of a point, by which it is kept."""

import hashlib
import inspect
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from vdnnsim.errors import VdnnsimError
from vdnnsim.hardware.server import Server
from vdnnsim.policies.interface import Policy, is_shipped
from vdnnsim.study.version import model_version


def costs_text(server: Server) -> str:
    gpu, kernels = server.gpu, server.kernels
    peaks = sorted((element_type.value, rate) for element_type, rate in gpu.flop_per_s.items())
    measured = () if kernels is None else (kernels.sha256, kernels.tf32, kernels.channels_last)
    model = server.cost_model_kind, sorted(server.cost_model.items())
    return repr((server.name, peaks, gpu.dram_bytes_per_s, gpu.multiprocessors, server.power, model, measured))


@cache
def policy_source(policy: type[Policy]) -> str:
    """Return the digest of a user's policy module; the version of the model covers those of vdnnsim."""
    if is_shipped(policy):
        return ""
    file = inspect.getsourcefile(policy)
    return "" if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()


def key_of_failure(point: Mapping[str, object], failure: VdnnsimError) -> str:
    return digest(sorted((key, repr(value)) for key, value in point.items()), str(failure), model_version())


def digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]
