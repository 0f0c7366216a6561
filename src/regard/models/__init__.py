"""Models of `regard.attention`: query, pooling, recurrent, Transformer, decoder-only."""
