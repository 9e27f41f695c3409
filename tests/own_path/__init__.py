"""The audit of the real path: real noise, real files, real processes; nothing is simulated."""
