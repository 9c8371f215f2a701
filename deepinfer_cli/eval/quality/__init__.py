"""How well a model, or an altered build of one, predicts text: perplexity and divergence from a base."""
