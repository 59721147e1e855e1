"""Keeps checkpoints as folders of weights and a manifest, verified when read. Nothing in them is ever run."""
