"""`python scripts/compare.py key=value ...` is `segmeter compare key=value ...`."""

import sys

from segmeter.cli.main import main

if __name__ == "__main__":
    main(["compare", *sys.argv[1:]])
