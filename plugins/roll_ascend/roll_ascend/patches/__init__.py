"""Changes to a model's modules that training on NPUs needs. Plain torch: they work on every device."""
