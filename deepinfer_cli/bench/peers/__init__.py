"""Other engines, each behind one class, run in a process of its own."""
