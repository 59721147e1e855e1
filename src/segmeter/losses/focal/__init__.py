"""logits, target -> focal loss and its gradient, by the backend that suits the tensors."""
