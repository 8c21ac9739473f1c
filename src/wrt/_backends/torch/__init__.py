"""PyTorch: the autograd graph of the real run, differentiated by autograd itself."""
