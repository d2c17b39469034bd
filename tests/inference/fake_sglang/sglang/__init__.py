"""A stand-in for SGLang with the signatures and outputs of 0.5.23, on this project's own engine for transformers."""
