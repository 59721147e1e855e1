"""`python scripts/train.py key=value ...` is `segmeter train key=value ...`."""

import sys

from segmeter.cli.main import main

if __name__ == "__main__":
    main(["train", *sys.argv[1:]])
