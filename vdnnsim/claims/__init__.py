"""Claims of papers, and measurements that others published, checked against the replay: `vdnnsim claims`.

The folder of a paper has its claims as YAML, its replays (`runs.py`) and their metrics (`metrics.py`); `public2026` has
measurements. `check.py` makes rows of claims, `paper.py` opens a paper. The command line and, in a clone, the pages
under `reports/` import this package. Begin with `claim.py` and `vdnn2016/claims.yaml`.
"""
