"""A service: policies out, episodes or reports in, over one store.

``tacit serve app.toml`` runs it (:mod:`tacit.cli.serve`). All that must survive is in the store
(:mod:`tacit.store`), so processes are alike, may be many, and may be killed at any instant.

A device reads the policy and with it takes a place in the block that fills; its ticket says which.
What it sends within the window fills that place: a row of the store before the device is told
(:mod:`tacit.service.intake`). Whichever process holds the lease moves blocks on by the two commits
of :mod:`tacit.core.agent` (:mod:`tacit.service.leader`). The lease is an economy: commits are
fenced, and a process that was stopped and wakes up changes nothing.
"""
