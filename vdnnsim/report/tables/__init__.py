"""Tables for people: on the terminal, and in reports."""
