"""Reading, checking and planning a run's config. Nothing here imports torch, ray or transformers."""
