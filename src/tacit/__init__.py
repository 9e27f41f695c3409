"""Reinforcement learning that learns from people without revealing them."""
