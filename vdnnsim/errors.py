"""The exceptions of vdnnsim.

    VdnnsimError
    ├── InputError            wrong input of a user: file, key path, what was found and what was expected
    │   ├── ScenarioError     a scenario file
    │   ├── StudyError        a study's file, its database, or the processes and clusters that compute it
    │   ├── ProfileError      a hardware profile
    │   ├── PolicyError       a policy's name, options or module
    │   ├── OutputError       a folder or file that cannot be written
    │   ├── DeviceError       a real device that is not there, lacks what is needed to use it, or runs out of memory
    │   ├── ExecutionRefused  a plan that asks for what an executor on a real device cannot do
    │   ├── CaptureError      a model that cannot be captured
    │   └── RecordingError    a trace or a memory snapshot that cannot be read
    ├── PlanError             a policy returned a plan that breaks the contract of `vdnnsim.plans`
    ├── InternalError         an invariant that does not hold: a bug
    └── SimulationDeadlock    a plan that cannot end
    PlanWarning               of a plan that is applied: a step that left it, or memory beyond it

Every message is one line. That a network does not fit is a result, never an exception.
"""


def is_fault(error: BaseException) -> bool:
    """Whether input, output or memory failed, or an exception was raised from that; the same may succeed later."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, OSError | MemoryError):
        cause = cause.__cause__
    return cause is not None


class VdnnsimError(Exception):
    """Base of everything that vdnnsim raises on purpose."""


class InputError(VdnnsimError):
    """Input of a user that is wrong; the command line prints its message and exits with 1."""


class ScenarioError(InputError):
    """A scenario that cannot be read or does not make sense."""


class StudyError(InputError):
    """A study that cannot be read or does not make sense, or whose results cannot be kept or computed."""


class ProfileError(InputError):
    """A hardware profile that cannot be found, read or used."""


class PolicyError(InputError):
    """A policy that is unknown, or given options that it does not have."""


class OutputError(InputError):
    """A result that cannot be written where the user asked for it."""


class DeviceError(InputError):
    """A real device that is not there, or PyTorch, without which none can be used; or one that runs out of memory."""


class ExecutionRefused(InputError):
    """A plan that asks for what an executor on a real device cannot do; the message names what."""


class CaptureError(InputError):
    """A model that cannot be captured; the message names the module, the user's line, and what would be right."""


class RecordingError(InputError):
    """A trace or a memory snapshot of a user's run that cannot be read, or lacks what is asked for."""


class PlanError(VdnnsimError):
    """A plan that breaks the contract: a bug of the policy that made it."""


class InternalError(VdnnsimError):
    """An invariant that does not hold: a bug of vdnnsim."""


class SimulationDeadlock(VdnnsimError):
    """A plan whose streams wait for each other; the message says what each of them waits for."""


class PlanWarning(UserWarning):
    """A step that left its plan, or memory beyond it."""
