"""Agents meet simulated users: runs, seeds, results, comparisons, plots."""
