"""`python -m prefixscope` is the command line too."""

from prefixscope.cli import main

main()
