"""`python -m vdnnsim`."""

import sys
from pathlib import Path

# Python looks for modules in the working directory first, where a file may be called as a library is, click among them.
# Last, as the command `vdnnsim` does, will do; only of a checkout all comes from there.
if Path(sys.path[0]) == Path.cwd() != Path(__file__).parents[1]:
    sys.path.append(sys.path.pop(0))

from vdnnsim.cli import main

main()
