"""Where the `lastgood` command begins. The version is answered before anything is imported."""

import gc
import os
import sys

import lastgood

SELDOM = 100_000
"""So many objects are made before garbage is collected: importing makes 30,000, and hardly any garbage (3 of 69 ms)."""


def main() -> None:
    """Run the command line, and end the process."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"lastgood {lastgood.__version__}\n")
        return
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed: what is said is for nobody
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115
    gc.set_threshold(SELDOM)
    try:
        from lastgood.cli.app import app

        app()
    except KeyboardInterrupt:  # before the command has begun, or after it has ended
        sys.exit(130)
    finally:
        gc.freeze()  # else the interpreter goes through everything once more before it ends: 6 of 69 ms


if __name__ == "__main__":
    main()
