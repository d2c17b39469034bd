"""The contracts of everything a plugin offers, with no test file at all:

    pytest --pyargs roll_core.testing.suite --roll-plugin roll_pretend

This module stays empty; `collecting.py` fills it with a class per backend.
"""
