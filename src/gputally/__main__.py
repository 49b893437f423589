"""`python -m gputally`."""

from gputally.cli import main

main()
