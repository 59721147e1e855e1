"""`python scripts/eval.py key=value ...` is `segmeter eval key=value ...`."""

import sys

from segmeter.cli.main import main

if __name__ == "__main__":
    main(["eval", *sys.argv[1:]])
