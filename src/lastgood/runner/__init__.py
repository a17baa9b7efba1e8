"""Live work that people can steer: sessions, the leases they hold, what is asked of them, and pipelines on them."""
