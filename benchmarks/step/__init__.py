"""What `benchmarks/rlvr_step.py` is made of: the work, the loops that do it, and how they are taken in turns."""
