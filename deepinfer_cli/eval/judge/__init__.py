"""Answers that no rule can compare: a model compares them. Off unless asked for."""
