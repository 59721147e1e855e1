"""arrays, checkpoints -> what the command line gives, in Python: `segmeter.evaluate` and `segmeter.load`."""
