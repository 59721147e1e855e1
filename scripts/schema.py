"""`python scripts/schema.py NAME` is `segmeter schema NAME`."""

import sys

from segmeter.cli.main import main

if __name__ == "__main__":
    main(["schema", *sys.argv[1:]])
