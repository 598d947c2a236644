"""`python -m vdnnsim`."""

from vdnnsim.cli import main

main()
