"""Instructions that a rule can check: the 25 published ones, and the 25 functions of ROLL's guide."""
