"""Vocabularies, batches of pairs, and corpora on disk.

Modules with large dependencies are not exported and must be imported explicitly: `parallel`, `subwords`,
`corpus`, `buckets`. Names are imported lazily, because the processes that build a corpus do not need PyTorch.
"""
