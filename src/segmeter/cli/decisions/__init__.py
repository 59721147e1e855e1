"""The commands that help to decide, one module each; `segmeter.cli.commands` lists them with the others."""
