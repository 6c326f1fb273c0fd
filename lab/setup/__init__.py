"""Everything behind ``python3 -m lab`` and ``python3 -m lab doctor|test``: set up, check, open.

Only ``convert``, ``doctor`` and ``measure`` need installed packages; every other module here runs on a
bare Python 3.11-3.13.
"""
