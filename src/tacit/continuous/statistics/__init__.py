"""What is asked of users on vectors: bounded functions of an episode, a module for each.

Where they are sums over a user's steps of a function on features, they are clipped as a whole. In
the coordinates ``features(s) @ root`` Euclidean length is the norm of a user's function, so that
the curator's noise is the noise of a Gaussian process (:func:`tacit.continuous.estimate.root_of`).
"""
