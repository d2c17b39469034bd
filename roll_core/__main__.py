"""`python -m roll_core` is the `roll` command, for where the script is not on the path."""

from roll_core.cli import main

main()
