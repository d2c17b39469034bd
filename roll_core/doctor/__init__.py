"""What `roll doctor` looks at on a machine, and what it knows about errors."""
