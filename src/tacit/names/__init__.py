"""Names and options as texts, and what they stand for."""
