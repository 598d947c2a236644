"""Page, tables, pictures and manifest of a validation."""
