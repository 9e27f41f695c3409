"""Numerical work that several families share."""
