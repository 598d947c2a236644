"""What is written of a validation: its page, tables, pictures and manifest."""
