"""`python scripts/predict.py key=value ...` is `segmeter predict key=value ...`."""

import sys

from segmeter.cli.main import main

if __name__ == "__main__":
    main(["predict", *sys.argv[1:]])
