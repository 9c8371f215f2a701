"""Data sets: from files of four formats, from the hub, or from the program itself."""
