"""What the campaign of hostile input tries, and where.

:mod:`research.hostile_campaign` is its command line. In here:

* :mod:`~research.hostile.fuzzing` tries inputs on an entry point and counts what breaks;
* :mod:`~research.hostile.calls` turns arguments of a call into junk;
* :mod:`~research.hostile.small` makes small worlds, agents, curators and logs;
* :mod:`~research.hostile.argument_entries` lists what takes arguments; worlds, curators
  and agents have modules of their own;
* :mod:`~research.hostile.values` has users whose values are anything at all;
* :mod:`~research.hostile.corruption` and :mod:`~research.hostile.files` corrupt files
  that are read, and let writes fail;
* :mod:`~research.hostile.loaders` reads many files in processes with little memory and time;
  :mod:`~research.hostile.mutation` and :mod:`~research.hostile.hand_made` make them;
* :mod:`~research.hostile.commands` attacks the command line.

All of it draws with Hypothesis, so importing anything of it needs the extra ``dev``.
"""

from importlib.util import find_spec

from tacit.privacy.errors import MissingExtra

if find_spec("hypothesis") is None:
    raise MissingExtra(
        "the campaign draws its inputs with Hypothesis, which is not installed; the extra dev "
        "brings it: pip install 'tacit[dev]'"
    )
