"""Runs under fire, in the library and in the service: nobody may be lost, and nobody pay twice.

    python -m research.campaign --what histories --kills 125 --store
    python -m research.campaign --what failover learn power --store
    python -m research.campaign --show

* :mod:`~research.campaign.servers` has processes and databases, and how they come to harm.
* :mod:`~research.campaign.clients` has all who use a service, and the journal of what they were
  told: a file that shares nothing with the store.
* :mod:`~research.campaign.books` compares the store with the journal.
* :mod:`~research.campaign.histories` lets a generated history happen to two processes on one
  store; named cases are histories in which one thing happens all the time.
* :mod:`~research.campaign.library` attacks one agent: exceptions at every line, threads, power.
"""
