"""name -> nn.Module: segmentation networks that take any image size, and the checkpoints that carry them."""
