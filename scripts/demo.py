"""`python scripts/demo.py` is `segmeter demo`."""

import sys

from segmeter.cli.main import main

if __name__ == "__main__":
    main(["demo", *sys.argv[1:]])
