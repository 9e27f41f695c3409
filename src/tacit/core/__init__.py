"""Agents that serve people, algorithms that think, and what passes between them."""
