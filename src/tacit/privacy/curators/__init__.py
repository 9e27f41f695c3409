"""The curators: the one gate between raw data and everything that is published.

What all share is in :mod:`~tacit.privacy.curators.gate`; the joint model and its proof in
:mod:`~tacit.privacy.curators.joint`, the local one in :mod:`~tacit.privacy.curators.local`, the
baseline without noise in :mod:`~tacit.privacy.curators.nonprivate`.
"""
