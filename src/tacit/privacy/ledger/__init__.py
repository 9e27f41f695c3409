"""What was spent, on disk, before it is published.

A ledger is an append-only text file, one JSON object per line. Its first line declares a limit;
every later line is a start, a join, a charge, a save, a resume, a succession or a repair, numbered
from 1. There are two kinds:

* A ledger of **one run** charges *keys*. A key is a block of users, a user is in one block, so what
  a user has spent is what her key has.
* A ledger of **people** is for several runs (agents) on one population. Its limit is what one
  person may spend over all of them. Each run has a budget of its own, and a person who takes part
  in it pays all of that budget, once, when she first joins: she is admitted if she can afford it,
  and else contributes nothing to that run. So runs share a person first come, first served. Who
  joined decides, never what her data looks like. What a run's releases cost its blocks is charged
  as before, up to what the run may spend on one episode; by the run's own accounting a person then
  never spends more than she paid. Persons are known by a keyed hash of their ids.

**Guarantees.** No key, and no person, is ever charged more than the limit (up to a relative 1e-9,
for rounding), whichever processes use the ledger and wherever they crash: a charge is on disk
before :meth:`Ledger.charge` returns, and it is decided under a lock, on what the file says then.
All releases of all runs about a person are then one adaptive sequence whose costs add up to at most
the limit: see :func:`tacit.privacy.gaussian_dp.compose`.
Each line is chained to the one before by SHA-256, so an edited, deleted or reordered line is
detected. A saved state continues once: a second continuation would put the same noise on two data
sets, and their difference is noise-free.

**Long ledgers** have an index beside them (:mod:`tacit.privacy.ledger.index`), derived from the
chain and made anew from it where it is missing or damaged. What a call costs grows with the
logarithm of what is on the ledger. Lines that the index has seen are not read again when a ledger
is opened, unless every line is asked for. **Locks** (:mod:`tacit.privacy.ledger.locks`) are taken
in turn, and who waits too long is told for whom. A damaged ledger is refused, and can be
**repaired** (:mod:`tacit.privacy.ledger.repair`) so that budget never comes back.

**Not guaranteed.** The chain detects accidents, not a forger who recomputes it. Lines cut off
the end leave a valid, older ledger; this is noticed only by its index, by a saved state, which has
the hash of the last line it knows, or by who noted such a hash (``expect``).
Whoever copies the ledger together with a state has made a fork that neither copy can see. The
key of the hashes is in the file: who has the file can try ids until one fits. Times are what the
machine's clock said.

**The order of a release** in a run that can be resumed:

1. ``charge(costs, label, pending=True)``: the cost is on disk, the result is not;
2. write the state file, which holds the noisy result, a fresh random token, and the ledger's
   ``id`` and ``sequence`` at that moment;
3. ``record_save(token)``: the result is settled, and earlier saves are void;
4. publish.

Steps 2 and 3 are one call, ``record_save(token, write)``: a run that has ended must not even
write, since its file may lie where that of its successor is.

**A save can be resumed** if it was not resumed before, and if everything recorded since it was
written by its run is joins and pending charges, which by this order were never published. A save
that step 3 did not reach is placed by the sequence number that its file holds (``after=``). What a
crash leaves:

=====================  ===========================================================================
crash                  what is safe, what is lost
=====================  ===========================================================================
before 1               Nothing was spent. The last save is resumed; lost is only what was learned
                       since it was written.
between 1 and 2        The last save is resumed. The charge stays, though nothing was published
                       for it. A block that this save does not have yet keeps its key, and what was
                       charged is to its credit: given again, its users pay once. A block that
                       the save has, and whose key was charged its whole limit, is lost.
between 2 and 3        The new state is resumed, with ``after``. Nothing is lost; it publishes.
between 3 and 4        The new state is resumed. Nothing is lost; it publishes.
after 4                The new state is resumed. Publishing the same result again costs nothing.
during 1 or 3          The line is whole and counts, or is torn and is dropped: as after or before.
during 2               The state file is the old or the new one, whole: as before or after.
after a resume         With a ``successor``, written before the resume was recorded: it is resumed,
                       and nothing is lost. Without one, until the next state is written, the
                       token is used up and the run is lost.
=====================  ===========================================================================

That credit is sound because nobody saw, or will see, what was drawn: the order above, and the next
paragraph. It takes for granted that a crash does not depend on the noise that was just drawn.

A process that did not crash, but whose save another one resumed, can record nothing more: its
next charge or save is refused, so it has nothing that it may publish, and writes no state.

**A succession ends a run**: nothing is charged, saved or resumed after it, since whoever took part
in the successor would be counted in both. It is recorded before the successor writes its first
state; a crash between the two ends the run without a successor.

Sums of costs are exact (fractions): every positive cost moves an account, however small it is.

Agents and curators take the path of a ledger or an opened one. A path that is wrong makes a new
ledger, of one run; an opened one is there, so nothing is ever made in its place.

Ledgers need POSIX file locks, on a file system that honours them.
"""

from tacit.privacy.ledger.header import FORMAT_VERSION, PEOPLE_VERSION
from tacit.privacy.ledger.ledger import Ledger
from tacit.privacy.ledger.records import Entry, Event, Terms, Unit

__all__ = ["FORMAT_VERSION", "PEOPLE_VERSION", "Entry", "Event", "Ledger", "Terms", "Unit"]
