"""A scenario: a workload, a machine and policies."""

from dataclasses import dataclass, replace

import msgspec

from vdnnsim.analysis.results import Setup
from vdnnsim.dnn.networks import build_network
from vdnnsim.dnn.workload import Workload, under_autocast
from vdnnsim.policies.interface import Policy, is_search


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario(Setup):
    """A setup with policies, each of which becomes a row of the results."""

    policies: tuple[Policy, ...]

    def workload_of(self, batch_size: int) -> Workload:
        """Return the workload with another batch, or raise InputError where it does not follow from the captures."""
        if self.captured is None:
            return replace(self.workload, batch_size=batch_size)
        return self.captured.workload(batch_size)

    def limited(self, time_limit: str) -> "Scenario":
        """Return the scenario with a time limit, as `20 s wall`, for its policies that search."""
        searching = {
            each: msgspec.structs.replace(each, time_limit=time_limit) for each in filter(is_search, self.policies)
        }
        return replace(self, policies=tuple(searching.get(each, each) for each in self.policies))

    def at_tokens(self, tokens: int) -> "Scenario":
        """Return the scenario on sequences of another length.

        Raises:
            InputError: the workload has no sequences, or none of this length.
        """
        workload = self.workload
        if self.captured is not None:
            captured = self.captured.at_tokens(tokens)
            return replace(self, captured=captured, workload=captured.workload(workload.part_size))
        graph = build_network(workload.graph.name, tokens)
        half = workload.graph.autocast
        return replace(self, workload=replace(workload, graph=under_autocast(graph, half) if half else graph))
