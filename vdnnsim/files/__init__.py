"""Files of users: read strictly, with errors that name the place; written whole or not at all.

Everything may import this package, which imports `errors.py` alone. Begin with `yaml_file.py`, which reads YAML into
the `Entry` of `value.py`; CSV tables are read by `csv_table.py`, and `atomic.py` writes.
"""
