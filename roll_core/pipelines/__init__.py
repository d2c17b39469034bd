"""The jobs: each pipeline file reads as the story of one step."""
