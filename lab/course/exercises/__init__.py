"""One file per notebook, `nbNN.py`, with the checks of its exercises, their solutions and their wrong answers."""
