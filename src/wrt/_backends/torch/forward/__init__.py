"""Batches of columns pushed by rules of our own: plain tensor operations on all tangents at once.

Torch's graph only knows the way back. Double backward finds the way forth from it, at the price of a second graph and
three times as many operations. A rule reads what a node saved and pushes k tangents through it in one operation.

`rules.py` holds one rule for each kind of node, `program.py` puts those of one question in order. What they push is
proven like every push: by the engine's own pull.
"""
