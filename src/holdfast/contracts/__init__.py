"""Every record of the formats that Holdfast writes and reads.  No I/O.

`record` is what all of them are made of, `kind` reads values against them, strictly or
liberally, and the area modules (`agents`, `ledger`, `jobs`, `swarm`, `improve`) say what there
is.  `kinds` has the whole list.
"""
