"""A service: policies out, episodes or reports in, and one ledger that is never overspent.

``tacit serve app.toml`` runs it (:mod:`tacit.cli.serve`). Three things are on disk: a database with
who came and what serves (:mod:`tacit.service.store`), the agent's secret state, and its ledger.
Episodes are rows of the database before a device is told that they were taken
(:mod:`tacit.service.intake`). One process at a time leads: it holds the agent, and takes blocks
through the gate (:mod:`tacit.service.curator`).

**The states of a block**, and what a crash leaves after each step. Steps are idempotent: whoever
leads next looks at the database and the agent's state, and goes on from there.

1. *Collecting.* Rows of the current block, a transaction for each handful; devices are answered
   when it is through. Crash: a row is there, or its device was not answered and sends it again
   under the same event id.
2. *Sealed*, in one transaction: which rows the block has, how many users the agent had served
   before it, and that nobody else follows that version. Crash: the block is sealed and the agent
   does not have it. It is given the same rows again.
3. *In the gate*, in the agent: the cost is on the ledger, noise is drawn, the state is saved, the
   ledger has the save. Crash before the state is saved: as in 2, and what the ledger was charged
   stands to that block's credit, so it is paid once
   (:meth:`tacit.privacy.curators.accounts.BlockAccounts.open`). After it: the agent has served the
   users of the block, and plans from what was saved; noise is drawn once.
4. *Published*, in one transaction: the new policy, what serves now, the ledger's head as a witness,
   and raw rows erased. Crash: as at the end of 3, or done.

**Fencing.** The leader holds a file lock beside the ledger, and a number (``epoch``) that it raised
in the database. All its transactions demand that number; the ledger refuses a run that another
process went on with. So a process that was stopped and wakes up changes nothing.

**Witnesses.** The database has the ledger's head from after every publication, and how many users
were served; the agent's state has both too. A ledger that lacks that line, a state that served
others than the database says, or a database that is new beside a state that is not: each is an
older copy, or a fork of the noise, and nothing is released until somebody has looked.
"""
