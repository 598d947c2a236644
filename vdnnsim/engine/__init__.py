"""The discrete-event simulator of plans, and the only importer of SimPy.

Begin with `simulate`. `streams` runs operations in order, `host` has the host time of each, `interconnect` and
`collectives` time copies and exchanges that share links.
Imports `plans`, costs and machines; scenarios and validation import it.
"""
