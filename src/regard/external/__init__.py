"""Load, record, analyze and prune external models, such as PyTorch modules and transformers models."""
