"""Rows' prompts to token ids: chat templates, raw text, BOS exactly once."""
