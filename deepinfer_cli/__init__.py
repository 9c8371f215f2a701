"""Offline batch inference from the command line."""

__version__ = "0.1.0"

# Raised by every change that may give a row other bits on the same instruction-set level and precision. Rows
# name it through their settings id, so that --resume never mixes the two; builds of equal number may mix.
NUMERICS_VERSION = 2
