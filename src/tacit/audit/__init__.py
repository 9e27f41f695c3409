"""What :func:`tacit.check_agent` and :func:`tacit.audit_agent` look at.

One module for each thing that an agent promises; and what they share: a watched gate, made-up and
worst users, the noise of releases and tests of it.
"""
