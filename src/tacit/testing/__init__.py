"""Checks and audits of counters, statistics and agents: Tacit's own, and anybody's.

They raise :class:`tacit.CheckFailed` with what is wrong, and return a short report otherwise.
Random checks have a fixed seed and say how improbable a false alarm is. They find slips, not
sabotage: code that recognises a check, or goes wrong only at a size that is not tried, passes.
None of them replaces a proof.
"""
