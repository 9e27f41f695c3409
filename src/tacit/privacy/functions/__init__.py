"""Functional noise: publishing whole functions."""
