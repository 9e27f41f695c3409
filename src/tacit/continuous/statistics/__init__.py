"""Queries to users on vectors: bounded functions of an episode.

Sums over a user's steps of a function on features are clipped as a whole. In the coordinates
``features(s) @ root`` Euclidean length is the norm of a user's function, so that the curator's
noise is that of a Gaussian process (:func:`tacit.continuous.estimate.root_of`).
"""
