"""Experiments that run the library for real, and what comes out: tables, figures, campaigns.

Tables are cases and columns on top of :mod:`~research.study`, in :mod:`~research.studies`; figures
share :mod:`~research.figures`. Pages are filled from stored results by :mod:`~research.results`.
"""
