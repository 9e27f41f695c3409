"""What Tacit costs and how well it does, measured against peers in the same run.

``python -m benchmarks`` runs everything and prints one table; ``python -m benchmarks counters``
runs one module. A benchmark is a module of this folder with a function ``rows()`` that yields
:class:`~benchmarks.row.Row` objects.
"""
