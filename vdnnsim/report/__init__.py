"""Results for people and programs: tables, sentences, pages, pictures, traces for Perfetto, snapshots for memory_viz.

A `document` is independent of its rendering by `terminal`, `markdown` and `html`. `result_table` is what commands print
and functions return; `progress` draws bars while they search; `folder` writes folders of results and their manifests;
`findings`, `caveats` and `certificates` are the sentences. `run/` makes the folder of a run, `plots/` alone imports
matplotlib. Begin with `run/folder.py`.
Studies, validations, the API and the command line import it; it computes nothing.
"""
