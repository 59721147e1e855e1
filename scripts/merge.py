"""`python scripts/merge.py key=value ...` is `segmeter merge key=value ...`."""

import sys

from segmeter.cli.main import main

if __name__ == "__main__":
    main(["merge", *sys.argv[1:]])
