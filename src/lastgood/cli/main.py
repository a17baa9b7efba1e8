"""Where the `lastgood` command begins. The version is answered before anything is imported."""

import sys

import lastgood


def main() -> None:
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"lastgood {lastgood.__version__}\n")
        return
    from lastgood.cli.app import app

    app()


if __name__ == "__main__":
    main()
