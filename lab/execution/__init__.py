"""Real tensors: weights, forward pass, paged keys and values, sampling. The only room that imports torch."""
