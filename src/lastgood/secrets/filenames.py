"""Names of files that hold secrets, and which are therefore not captured unless a rule says so.

The name alone decides: nothing is opened. Names are compared without regard to case. A wrong guess costs one line
in the report and one line in a `.lastgoodignore`; a secret that was captured is in every later backup.
"""

from __future__ import annotations

import posixpath

from lastgood.model.identity import digest

_FOLDERS = frozenset({b".ssh", b".gnupg", b".password-store"})

_NAMES = frozenset(
    {
        *(b".env", b".envrc", b".netrc", b"_netrc", b".npmrc", b".pypirc", b".pgpass", b".my.cnf", b".mylogin.cnf"),
        *(b".git-credentials", b".htpasswd", b".dockercfg", b".s3cfg", b".boto", b".vault-token", b".vault_pass"),
        *(b"credentials.json", b".credentials.json", b"application_default_credentials.json", b"credentials.tfrc.json"),
        *(b"secrets.yml", b"secrets.yaml", b"secrets.json", b"secrets.toml", b"local.settings.json"),
        *(b"kubeconfig", b"rclone.conf", b"wallet.dat"),
    }
)

# Names that say nothing by themselves, with the folders in which they do.
_NAMES_IN = {
    b"credentials": frozenset({b".aws", b".gem", b".cargo", b".oci"}),
    b"credentials.toml": frozenset({b".cargo"}),
    b"config": frozenset({b".kube"}),
    b"config.json": frozenset({b".docker"}),
    b"auth.json": frozenset({b".codex", b".composer", b"composer"}),
    b"hosts.yml": frozenset({b"gh"}),
}

_ENDINGS = frozenset(
    {
        *(b".pem", b".key", b".p12", b".pfx", b".pkcs12", b".p8", b".ppk", b".jks", b".jceks", b".keystore"),
        *(b".kdbx", b".kdb", b".psafe3", b".1pux", b".keytab", b".ovpn", b".env"),
    }
)

_BEGINNINGS = (
    *(b".env.", b".env-", b".env_", b"id_rsa", b"id_dsa", b"id_ecdsa", b"id_ed25519"),
    *(b"service-account", b"service_account", b"serviceaccount", b"client_secret"),
)
_JSON_ONLY = _BEGINNINGS[-4:]

_PUBLIC = frozenset({b"example", b"sample", b"template", b"dist", b"tmpl", b"tpl", b"schema"})
_COPIES = (b"~", b".bak", b".old", b".orig", b".save", b".swp", b".tmp")

_PLACES = sorted((name, sorted(folders)) for name, folders in _NAMES_IN.items())
_ALL = (*map(sorted, (_FOLDERS, _NAMES, _ENDINGS, _PUBLIC)), _PLACES, _BEGINNINGS, _COPIES)
DIGEST = digest(repr(_ALL).encode())
"""Changes when the names do."""


def is_secret(folder: bytes, name: bytes, is_folder: bool) -> bool:
    """Say whether something called `name`, in a folder called `folder`, is taken for a secret."""
    name = name.lower()
    if is_folder:
        return name in _FOLDERS
    if name.endswith(_COPIES):
        name = _original(name)
    if name in _NAMES or (name in _NAMES_IN and folder.lower() in _NAMES_IN[name]):
        return True
    stem, dot, ending = name.rpartition(b".")
    if dot and dot + ending in _ENDINGS:
        return stem not in _PUBLIC
    return name.startswith(_BEGINNINGS) and _is_secret_beginning(name, ending)


def is_secret_path(path: bytes) -> bool:
    """Say whether what is at this path is taken for a secret, whether it is a file or a folder."""
    folder, name = posixpath.split(path)
    return any(is_secret(posixpath.basename(folder), name, is_folder) for is_folder in (False, True))


def _is_secret_beginning(name: bytes, ending: bytes) -> bool:
    if name.startswith(b".env"):
        return ending not in _PUBLIC
    if name.startswith(_JSON_ONLY):
        return ending == b"json"
    return ending != b"pub"


def _original(name: bytes) -> bytes:
    """Return the name that a copy was made from: an editor's backup of a secret is one, too."""
    for ending in _COPIES:
        if name.endswith(ending):
            stem = name[: -len(ending)]
            return stem[1:] if ending == b".swp" and stem.startswith(b"..") else stem
    return name
