"""Log, metrics, alerts, spans, and exporters behind extras."""
