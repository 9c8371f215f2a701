"""Text to token ids and back, from tokenizer.json or from a GGUF file's metadata."""
