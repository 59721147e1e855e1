"""Logits -> labels in one pass over the logits: numba on the CPU, Triton on CUDA."""
