"""Runs the commands that help to decide: `agree`, `suspects`, `plan` and `tune`, each in the module of its name.

They read runs and write files here, compute in `segmeter.metrics.summary` and `segmeter.metrics.objects`, and are shown
by `segmeter.report`. `settings` holds the settings that `tune` tries, `held_out` opens evaluations with probabilities.
"""
