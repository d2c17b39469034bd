"""Makes a config written for one platform a config for another, as text, and says what and why."""
