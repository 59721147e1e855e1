"""Checkpoints as folders of weights and a manifest, verified when read; nothing in a file is ever run."""
