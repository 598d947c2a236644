"""Claims of papers, and measurements that others published, checked against the replay: `vdnnsim claims`.

A folder for each paper has its claims as YAML, its replays (`runs.py`) and what is computed of them (`metrics.py`);
`public2026` has others' measurements. `check.py` makes rows of claims, `paper.py` opens a paper. The command line and
the pages under `reports/` in a clone import this package. Begin with `claim.py` and `vdnn2016/claims.yaml`.
"""
