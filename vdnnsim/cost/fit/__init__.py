"""Fits of the parameters that shipped profiles state: `python -m vdnnsim.cost.fit hw_profiles/NAME.yaml`.

Begin with `least_squares`; `maxwell` and `efficiency` read the rows of the two cost models, `hosts` fits host times. No
run imports this package: only tests, and pages that show rows.
"""
