"""The only place where the rooms meet: one file per stage, and the build that chains them.

A **stage** is what is done (index, match, tokenize ...), a **unit** is what it is done to (a shard, a partition, a
cell, a part), and a step is one stage on one unit. A stage says, as plain functions of a build:

* ``units``     the names of its units,
* ``inputs``    the steps whose outputs one unit reads,
* ``settings``  what else can change its bytes,
* ``run``       the work, which writes files into the folder it is given,
* ``checks``    the accounts that must balance once it has run.

From inputs and settings follows each step's fingerprint, so **where every receipt lies is a function of the plan and
of the receipts before it**. Nothing else is handed from task to task: no list of results in a scheduler's database
can go stale. (See decisions/0001-receipts-not-messages.md.)

This package is light to import; stages import the heavy rooms when they run. It knows nothing of Airflow.
"""
