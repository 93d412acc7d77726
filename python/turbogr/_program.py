"""The command line `turbogr`: hands over to the program that came with the package."""

import os
import sys

from turbogr import _libraries


def main() -> None:
    """Becomes the program: its exit status, signals and output are its own."""
    _libraries.announce()
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "turbogr")
    os.execv(program, ["turbogr", *sys.argv[1:]])
