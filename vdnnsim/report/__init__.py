"""Results for people and programs: tables, sentences, pages, pictures, traces for Perfetto, snapshots for memory_viz.

`document` is what is said, apart from how it is shown: `terminal`, `markdown` and `html` show it. `result_table` is
what commands print and functions return; `folder` writes folders of results and their manifests; `findings`, `caveats`
and `certificates` are the sentences. `run/` makes the folder of a run, `plots/` alone knows matplotlib. Begin with
`run/folder.py`. Studies, validations, the API and the command line import it; it computes nothing.
"""
