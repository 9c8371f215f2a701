"""Texts that must fit something: what a row or a run asks for, how it is checked, and what enforces it."""
