"""Models that run in this process with PyTorch, one file per kind. Needs the extra `torch`."""
