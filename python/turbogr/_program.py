"""The command line `turbogr`: hands over to the program that came with the package."""

import os
import sys


def main() -> None:
    """Becomes the program: its exit status, signals and output are its own."""
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "turbogr")
    os.execv(program, ["turbogr", *sys.argv[1:]])
