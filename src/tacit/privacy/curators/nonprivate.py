"""The baseline: no noise, no accounts, no guarantee."""

from __future__ import annotations

import numpy as np

from tacit.privacy.arguments import instance_of, whole_number
from tacit.privacy.curator import Curator, Release, Stream, WantedStream
from tacit.privacy.curators.participants import UserIds
from tacit.privacy.errors import HorizonExceeded
from tacit.privacy.models import NonPrivate
from tacit.privacy.noise import NoiseSource
from tacit.privacy.statistic import WHOLE_EPISODE, Block, Floats, Statistic, gate_total


class NonPrivateCurator(Curator):
    """Adds nothing, promises nothing: the baseline."""

    def __init__(
        self,
        privacy: NonPrivate,
        *,
        users: int | None = None,
        noise_seed: int | None = None,
        source: NoiseSource | None = None,
        protects: str = WHOLE_EPISODE,
    ) -> None:
        super().__init__(users=users, noise_seed=noise_seed, source=source, protects=protects)
        self.privacy = privacy

    def _release(self, statistic: Statistic, block: int, mu: float | None) -> Release:
        total, users = gate_total(statistic, self._raw(block)), self._block_users[block]
        return self._publish_sum(statistic, total, statistic.layout.stds(0.0), users, None)

    def _stream(self, statistic: Statistic, wanted: WantedStream) -> Stream:
        """The exact running sum, whatever ``kind`` of counter is asked for."""
        instance_of("statistic", statistic, Statistic)
        return _NonPrivateStream(self, wanted.name, statistic, wanted.releases)

    @property
    def guarantee(self) -> None:
        """None."""
        return None


class _NonPrivateStream(Stream):
    def __init__(
        self, curator: NonPrivateCurator, name: str, statistic: Statistic, releases: int
    ) -> None:
        super().__init__(curator, name, statistic)
        self._releases = whole_number("releases", releases)
        self._sum = np.zeros(statistic.layout.size)

    @property
    def std(self) -> Floats:
        return np.zeros(self._releases)

    def _release(self, block: Block | int, user_ids: UserIds) -> Release:
        if len(self.entered) >= self._releases:
            raise HorizonExceeded(
                f"stream {self.name!r} was declared for {self._releases} releases"
            )
        number = self._enter(block, user_ids)
        raw = self._curator._raw(number)
        self._sum = self._sum + gate_total(self.statistic, raw)
        self.entered.add(number)
        self.users += raw.users
        if isinstance(block, Block):
            self._curator._forget(number)
        std = self.statistic.layout.stds(0.0)
        return self._curator._publish_sum(self.statistic, self._sum, std, self.users, None)
