"""Pages to read in a browser: one file each, no network, no library."""
