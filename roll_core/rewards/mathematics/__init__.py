"""Whether two written answers mean the same: notation, exact numbers, structure, units, and algebra."""
