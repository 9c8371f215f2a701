"""Finished requests to output rows, and the ordered writer."""
