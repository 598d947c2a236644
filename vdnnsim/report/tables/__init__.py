"""Tables for people of captured and recorded steps, snapshots, topologies, and of a run."""
