"""Kernel costs: seconds and workspace of one operation, alone on a GPU.

Begin with `table` (`CostTable`, and `CostModel`, which makes one) and `model.ServerCosts`. `measured`, `efficiency`,
`maxwell` and `roofline` are the kinds of cost model that a profile names, `captured` costs what PyTorch dispatched, and
`transfer` is for copies. Imports `dnn`, `hardware` and `memory`, and what is below them.
"""
