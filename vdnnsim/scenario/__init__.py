"""The edge where YAML comes in."""
