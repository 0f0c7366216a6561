"""Read and write files and folders. Writes are atomic, and only one process at a time changes a folder."""
