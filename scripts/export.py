"""`python scripts/export.py key=value ...` is `segmeter export key=value ...`."""

import sys

from segmeter.cli.main import main

if __name__ == "__main__":
    main(["export", *sys.argv[1:]])
