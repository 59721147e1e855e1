"""logits, target -> scalar."""
