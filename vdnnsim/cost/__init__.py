"""How long one operation takes alone on a GPU, and how much workspace it wants.

Begin with `table` (`CostTable`, and `CostModel`, which makes one) and `model.ServerCosts`. `measured`, `efficiency`,
`maxwell` and `roofline` are the kinds of cost model that a profile names, `captured` costs what PyTorch dispatched, and
`transfer` is for copies. Imports `dnn`, `hardware` and `memory`, and what is below them.
"""
