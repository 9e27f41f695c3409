"""What is checked of people's data before anything changes. Shapes, ids and versions are public."""

from __future__ import annotations

import numpy as np

from tacit.core.waiting import Ids
from tacit.privacy.arguments import row_ids
from tacit.privacy.curators.gate import Curator
from tacit.privacy.curators.joint import JointCurator
from tacit.privacy.errors import InvalidArgument
from tacit.privacy.models import Privacy
from tacit.privacy.statistic import Block


def check_ids(data: Block, user_ids: Ids, privacy: Privacy, curator: Curator) -> None:
    """Refuses what the curator would refuse when the block is full."""
    given = user_ids is not None
    if privacy.local and not curator.source.simulation:
        raise InvalidArgument("raw data is for simulations (give noise_seed): devices report")
    ledger = curator.accounts.ledger if isinstance(curator, JointCurator) else None
    if ledger is not None and ledger.people and not given:
        raise InvalidArgument("the ledger counts people: give user_ids")
    if privacy.disjoint and privacy.episodes_per_user > 1 and not given:
        raise InvalidArgument("disjoint=True is enforced by user_ids: give them")
    if user_ids is None:
        return
    if data.aggregate:
        raise InvalidArgument("an aggregate block has no user_ids")
    row_ids(user_ids, data.users)
    kinds = {type(user) for user in user_ids}
    if not all(issubclass(k, (int, str, np.integer)) and k is not bool for k in kinds):
        words = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise InvalidArgument(f"user_ids must be integers or strings, got {words}")


def check_versions(data: Block, newest: int) -> None:
    """Which policy a user followed is public: one that was never published is a mistake."""
    versions = np.asarray(data["versions"])
    known = versions.dtype.kind in "iu" and (versions >= 0).all()
    if versions.size and not (known and (versions <= newest).all()):
        raise InvalidArgument(
            f"versions must say which published policy each user followed, 0 to {newest}; "
            "others were never published"
        )
