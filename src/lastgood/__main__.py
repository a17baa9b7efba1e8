"""`python -m lastgood` is the command line."""

from lastgood.cli.main import main

main()
