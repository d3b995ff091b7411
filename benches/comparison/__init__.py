"""The parts of `compare.py`.

`paths` (where things are) ← `environment` (interpreter, peers, native programs) ← `rows` (what is
compared) ← `measuring` (who runs when) ← `results` (medians and ratios) ← `markdown`, `plot`.
"""
