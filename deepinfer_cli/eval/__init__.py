"""Evaluations: problems to rows, answers to verdicts, verdicts to numbers with an interval."""
