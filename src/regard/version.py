"""The version, alone in a file that packaging can read without importing PyTorch."""

__version__ = "0.1.0"
