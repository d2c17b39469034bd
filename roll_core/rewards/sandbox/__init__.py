"""Running programs that nobody vouches for: what they may use, where they run, and who judges them.

A program runs in a process of its own, in a jail with an empty home, no network and hard limits. What judges it, and
what it should have answered, is never in that process: tests call it through a pipe, by `remote` and `guest`.
"""
