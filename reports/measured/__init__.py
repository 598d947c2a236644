"""Training steps that were measured on GPUs of our own, and a page that holds predictions against them.

`measure.py` measures the networks of `models.py` on a GPU; `python -m reports.measured` draws the page on its rows.
"""
