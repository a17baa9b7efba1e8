"""Live work: sessions and their leases, requests, automatic saving, pipelines."""
