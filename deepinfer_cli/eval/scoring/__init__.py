"""From an output to a verdict. Every rule here is written down in docs/reference/eval.md."""
