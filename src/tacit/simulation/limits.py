"""The fewest users with which any private method can learn.

Take two worlds that an agent cannot tell apart beforehand, in which no policy is near-optimal
twice. Data sets of n users are n mu-GDP apart at most (group privacy), whatever the users do. So
whoever is right nine times of ten in both worlds needs n mu >= 2 z, z = 1.2816; under pure DP n
epsilon >= ln 9. Users who come to where the worlds differ with probability t at most count as t
users each: where that is rare, more are needed than this.
"""

from __future__ import annotations

import math

from tacit.privacy.models import Privacy


def fewest_users(privacy: Privacy) -> int | None:
    """Users to tell two worlds apart; 1 without privacy.

    ``None`` for local DP, of which the argument says nothing sharp.

    >>> from tacit import JointDP
    >>> fewest_users(JointDP(1.0, 1e-6)), fewest_users(JointDP(1.0, 0.0))
    (11, 3)
    """
    if not privacy.private:
        return 1
    if privacy.local:
        return None
    if privacy.pure:
        return math.ceil(math.log(9.0) / privacy.epsilon)
    from scipy.special import ndtri

    return math.ceil(float(-2.0 * ndtri(0.1)) / privacy.budget.mu)
