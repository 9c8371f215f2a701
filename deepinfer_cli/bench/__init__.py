"""Measurements: workloads, the engines that run them, and paired comparison."""
