"""The YAML edge of studies: a file with its axes and conditions."""
