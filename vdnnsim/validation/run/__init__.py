"""Both sides of one row: a plan executed on a device, and replayed."""
