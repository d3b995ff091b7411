"""The modules of `compare.py`.

`paths` (locations) ← `environment` (interpreter, peers, native programs) ← `rows` (what is compared)
← `measuring` (run order) ← `results` (medians and ratios) ← `markdown`, `plot`.
"""
