"""Finite worlds: models, simulation, policies, counts."""
