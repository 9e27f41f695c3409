"""The campaign of hostile input: what it tries, and where.

:mod:`~research.hostile.fuzzing` tries inputs on an entry point and counts what breaks,
:mod:`~research.hostile.arguments` has what takes arguments, and :mod:`~research.hostile.files`
damages files. :mod:`research.hostile_campaign` is the campaign's own.
"""
