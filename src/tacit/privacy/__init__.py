"""What may be said about people: budgets, guarantees, noise, counters, the curator, audits."""
