"""The spool: where checkpoints wait that their store could not take.

`file` keeps them, `entry` says what one is, `breaker` knows whether the store is away and asks for it, `replay` brings
them into the store, `overlay` shows them to whoever reads meanwhile, `spool` joins these.
"""
