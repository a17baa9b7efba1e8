"""What a person lets the command line do, said in the environment. A lastgood.toml cannot say it: whoever clones a
folder has not agreed to what stands in it."""

from __future__ import annotations

import os
from typing import Any

from lastgood.errors import InvalidError

VARIABLES = {"network": "LASTGOOD_NETWORK"}


def options_from_environment() -> dict[str, Any]:
    """As `lastgood.open` takes them; InvalidError, with the variable's name, for what it does not take."""
    from lastgood.engine.options import Options

    given = {name: value for name, variable in VARIABLES.items() if (value := os.environ.get(variable))}
    for name, value in given.items():
        try:
            Options(**{name: value})  # type: ignore[arg-type]
        except InvalidError as error:
            raise InvalidError(f"{VARIABLES[name]}: {error}", hint=error.hint, field=VARIABLES[name]) from error
    return given
