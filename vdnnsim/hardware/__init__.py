"""Machines: GPUs, links, hosts and topologies in SI units, and the YAML profiles that describe them.

Every figure of a profile has a unit, an origin and a source. Costs, plans and all above import this package; it imports
`files` and `units`. Begin with `server.py`, which defines a machine, and `profile.py`, which reads one; `figures.py`
derives reading, writing, varying and explaining of figures from the annotations of `server.py`.
"""
