"""`python -m segmeter` is the console command."""

from segmeter.cli.main import main

if __name__ == "__main__":
    main()
