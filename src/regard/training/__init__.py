"""Training: config, registry of models, optimizer recipes, training loop, checkpoints, run folders."""
