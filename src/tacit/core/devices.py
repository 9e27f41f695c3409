"""Agents of people whose devices add the noise: what they take in place of episodes."""

from __future__ import annotations

from numpy.typing import ArrayLike

from tacit.core.columns import as_numbers
from tacit.core.receipt import Receipt
from tacit.core.session import Ids
from tacit.core.versions import Versions
from tacit.privacy.distributed import DistributedCurator
from tacit.privacy.local import LocalCurator
from tacit.privacy.errors import InvalidArgument


class Devices(Versions):
    """Takes reports of local DP, and sums that a secure sum opened."""

    def learn_reports(self, reports: ArrayLike, user_ids: Ids = None) -> Receipt:
        """Takes the local reports of all users of the current block; see :mod:`tacit.local`.

        One row per user, made on her device by ``tacit.local.report`` from ``statistic`` and
        ``privacy``; ``user_ids`` say who sent them. Errors say who was taken, as in :meth:`learn`.
        """
        call = lambda _: self._learn_reports(reports, user_ids)  # noqa: E731
        return self._take_all("learn_reports", reports, call)

    def _learn_reports(self, reports: ArrayLike, user_ids: Ids) -> Receipt:
        if not isinstance(self._curator, LocalCurator):
            raise InvalidArgument("reports are for LocalDP; a joint agent takes episodes")
        # What a device sent instead of a number must not cost the others their reports.
        rows, statistic = as_numbers("reports", reports), self._session.round.statistic
        shape = (self._room(), statistic.layout.size)
        if rows.shape != shape:
            raise InvalidArgument(
                f"reports must have shape {shape}, a row per user of the current block, got "
                f"{rows.shape}"
            )
        self._session.waiting.through = self._algorithm.served + len(rows)
        number = self._curator.collect(statistic, rows, user_ids)
        self._ask(number, len(rows))
        return self._through(0, len(rows))

    def learn_sum(self, total: ArrayLike, stayed: int | None = None) -> Receipt:
        """Takes what a secure sum over all users of the current block opened.

        It is of the shares that ``tacit.distributed.share`` made on their devices, from
        ``statistic`` and ``privacy``, for ``block_users`` devices, of which ``stayed`` are in it.
        """
        call = lambda _: self._learn_sum(total, stayed)  # noqa: E731
        return self._take_all("learn_sum", total, call)

    def _learn_sum(self, total: ArrayLike, stayed: int | None) -> Receipt:
        if not isinstance(self._curator, DistributedCurator):
            raise InvalidArgument("opened sums are for DistributedDP")
        statistic, devices = self._session.round.statistic, self._room()
        stayed = devices if stayed is None else stayed
        self._session.waiting.through = self._algorithm.served + devices
        number = self._curator.collect_sum(statistic, total, devices=devices, stayed=stayed)
        self._ask(number, devices)
        return self._through(0, devices)
