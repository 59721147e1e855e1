"""The Python interface: `segmeter.evaluate`, `segmeter.compare` and `segmeter.load`."""
