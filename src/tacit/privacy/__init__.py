"""What may be said about people: budgets, guarantees, noise, counters, the curator, audits.

Nothing in here knows about reinforcement learning, and nothing in here imports the rest of Tacit.
"""
