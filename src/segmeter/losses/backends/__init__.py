"""One meaning of focal loss, several implementations: logits, target -> sum, normaliser, bad labels."""
