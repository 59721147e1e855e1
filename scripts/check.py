"""`python scripts/check.py key=value ...` is `segmeter check key=value ...`."""

import sys

from segmeter.cli.main import main

if __name__ == "__main__":
    main(["check", *sys.argv[1:]])
