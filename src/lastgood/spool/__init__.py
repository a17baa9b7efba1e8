"""The spool: checkpoints that wait on this machine until their store, which is away, can take them.

`file` is its database, `entries` what it holds. `breaker` knows whether the store is away and probes it, `replay`
brings the entries into the store, `overlay` shows them in its catalog meanwhile, `spool` joins these.
"""
