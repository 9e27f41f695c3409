"""The baseline: no noise, no accounts, no guarantee."""

from __future__ import annotations

import numpy as np

from tacit.privacy.arguments import instance_of
from tacit.privacy.counters import Noiseless
from tacit.privacy.curators.gate import (
    Curator,
    Release,
    Stream,
    Wanted,
    WantedStream,
    chosen_blocks,
)
from tacit.privacy.curators.participants import UserIds
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

    def _release(self, statistic: Statistic, wanted: Wanted) -> Release:
        instance_of("statistic", statistic, Statistic)
        selection = chosen_blocks(wanted, self._blocks, self.entered - 1)
        totals = (w * gate_total(statistic, self._blocks[b]) for b, w in selection.items())
        total = np.asarray(sum(totals))
        if wanted.mask is not None:
            total = np.where(statistic.layout.pack_mask(wanted.mask), total, 0.0)
        users = sum(self._block_users[b] for b in selection)
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
        self._counter = Noiseless(releases=releases, shape=(statistic.layout.size,))

    @property
    def std(self) -> Floats:
        return self._counter.std

    def _release(self, block: Block | int, keep: bool, user_ids: UserIds) -> Release:
        number = self._enter(block, user_ids)
        raw = self._curator._raw(number)
        vector = self._counter.release(gate_total(self.statistic, raw))
        self.entered.add(number)
        self.users += raw.users
        if isinstance(block, Block) and not keep:
            self._curator._forget(number)
        std = self.statistic.layout.stds(0.0)
        return self._curator._publish_sum(self.statistic, vector, std, self.users, None)
