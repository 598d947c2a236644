"""A scenario: what is trained, where, and by which policies."""

from dataclasses import dataclass, replace

from vdnnsim.analysis.results import Setup
from vdnnsim.dnn.workload import Workload
from vdnnsim.policies.interface import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario(Setup):
    """One question to the simulator.

    Attributes:
        policies: in the order of the file; each becomes one row of the results.
    """

    policies: tuple[Policy, ...]

    def workload_of(self, batch_size: int) -> Workload:
        """Return the workload with another batch.

        Raises:
            InputError: it was captured, and does not follow from what was captured.
        """
        if self.captured is None:
            return replace(self.workload, batch_size=batch_size)
        return self.captured.workload(batch_size)
