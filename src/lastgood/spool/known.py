"""Opening a store that may be away: it can be gone on with if something is spooled for it.

Of a store that nothing is spooled for nothing is known here, neither where its tasks are nor whether it is there at
all; then opening it is as it would be without a spool: it fails, or where nothing lies there a new store is made.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

from lastgood.catalog.contract import Catalog
from lastgood.engine.options import Options
from lastgood.errors import CheckpointError, UnavailableError
from lastgood.spool.absent import AbsentCatalog
from lastgood.spool.file import SpoolFile, any_pending
from lastgood.spool.place import NAME, spool_folder


def open_or_stand_in(catalog: Path, open_it: Callable[[], Catalog], options: Options) -> Catalog:
    """Open the store at `catalog`. Where it is away and something is spooled for it, return a catalog that refuses
    everything: above all no new store is made in the place of one that was moved away."""
    spool_folder(catalog, options)  # refuses a folder that cannot be one, before anything is opened
    if not is_there(catalog) and has_spooled(catalog, options):
        error = UnavailableError("the store is not there", hint="bring it back to where it was")
        return cast(Catalog, AbsentCatalog(catalog, error))
    try:
        return open_it()
    except UnavailableError as error:
        if not has_spooled(catalog, options):
            raise
        return cast(Catalog, AbsentCatalog(catalog, error))


def has_spooled(catalog: Path, options: Options) -> bool:
    folder = spool_folder(catalog, options)
    if folder is None or not is_there(folder / NAME):
        return False
    file = SpoolFile(folder)
    try:
        return file.read(any_pending, False)
    except CheckpointError:  # whoever opens the store says what is wrong with it
        return False
    finally:
        file.close()


def is_there(path: Path) -> bool:
    """Whether something lies there; not if that cannot be looked at."""
    try:
        return path.exists()
    except OSError:
        return False
