"""The edge where results go out: tables, files, pictures, traces for Perfetto."""
