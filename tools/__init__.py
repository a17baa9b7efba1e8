"""Scripts for developers, run by `./dev`. Nothing in here is installed."""
