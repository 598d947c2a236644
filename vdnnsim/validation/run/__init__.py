"""Both sides of a row: a plan executed on a device, and replayed."""
