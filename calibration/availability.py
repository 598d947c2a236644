"""A check that PyTorch can be imported, which needs no PyTorch and raises an error of one line."""

import re

from vdnnsim.errors import DeviceError

_INSTALL = "`pip install 'vdnnsim[calibrate]'` installs it"
# The oldest that this package was written for.
_OLDEST = (2, 11)


def require_torch(what: str = "a real device") -> None:
    """Import PyTorch, which `what` needs.

    Raises:
        DeviceError: it is not installed, cannot be loaded, or is too old; the message says how to install it.
    """
    try:
        import torch
    except ModuleNotFoundError as missing:
        if missing.name != "torch":
            raise DeviceError(f"PyTorch cannot be imported, {missing.name} is missing; {_INSTALL}") from None
        raise DeviceError(f"{what} needs PyTorch, which is not installed; {_INSTALL}") from None
    except (ImportError, OSError) as failure:  # a shared library that is missing or does not fit
        reason = str(failure).partition("\n")[0]
        raise DeviceError(f"PyTorch is installed but cannot be imported: {reason}; {_INSTALL}") from None
    version = str(torch.__version__)
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or tuple(map(int, found.groups())) < _OLDEST:
        oldest = ".".join(map(str, _OLDEST))
        raise DeviceError(f"PyTorch {version} found, expected {oldest} or later; {_INSTALL}")
