"""Schedules of whole iterations that several policies share, and the layout of memory under Layrub."""
