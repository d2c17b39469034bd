"""What a run's rollouts were like, for a person: read from its dumps, as lines and as a page."""
