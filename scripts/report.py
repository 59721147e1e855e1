"""`python scripts/report.py` is `segmeter report`."""

import sys

from segmeter.cli.main import main

if __name__ == "__main__":
    main(["report", *sys.argv[1:]])
