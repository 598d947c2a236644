"""Printed tables of captured and recorded steps, snapshots, topologies, and of a run."""
