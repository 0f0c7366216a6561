"""Cards: evidence about an attention mechanism, measured beside softmax on small probes over several seeds."""
