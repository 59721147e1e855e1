"""`python scripts/score.py key=value ...` is `segmeter score key=value ...`."""

import sys

from segmeter.cli.main import main

if __name__ == "__main__":
    main(["score", *sys.argv[1:]])
