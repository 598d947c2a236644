"""A scenario: a workload, a machine and policies."""

from dataclasses import dataclass, replace

from vdnnsim.analysis.results import Setup
from vdnnsim.dnn.workload import Workload
from vdnnsim.policies.interface import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario(Setup):
    """A setup with policies, each of which becomes a row of the results."""

    policies: tuple[Policy, ...]

    def workload_of(self, batch_size: int) -> Workload:
        """Return the workload with another batch.

        Raises:
            InputError: it does not follow from the captures.
        """
        if self.captured is None:
            return replace(self.workload, batch_size=batch_size)
        return self.captured.workload(batch_size)
