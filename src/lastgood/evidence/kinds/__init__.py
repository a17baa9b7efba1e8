"""Types of evidence, one module for each kind: what a claim says, and how it is checked (D1)."""
