"""image -> logits -> labels: tiling, flips and decoding on the device."""
