"""One folder per task. The registry is tasks/registry.py; other packages add theirs by entry point."""
