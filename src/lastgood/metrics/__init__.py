"""A store's metrics where others collect theirs. Each module needs an extra, and loads when it is asked for."""
