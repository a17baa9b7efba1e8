"""What a secret is, and how it is masked in text and redacted in state."""
