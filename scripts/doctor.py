"""`python scripts/doctor.py` is `segmeter doctor`."""

import sys

from segmeter.cli.main import main

if __name__ == "__main__":
    main(["doctor", *sys.argv[1:]])
