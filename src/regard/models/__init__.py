"""Models built from `regard.attention`: query, pooling, recurrent encoder-decoder, Transformer,
decoder-only language model."""
