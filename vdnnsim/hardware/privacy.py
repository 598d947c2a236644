"""What must not stand in a profile that is given to others: whatever tells whose machine it describes.

A profile says of its provenance what hardware and software it was measured with. The names and values of that are held
against patterns of what identifies a person or one specimen of a machine. Known limitation: a name of a person that
stands alone is a word as any other.
"""

import re
from typing import Final

_NAMES: Final = (
    (re.compile(r"(.*_)?(host|hostname|host_?name|node|nodename|computer|fqdn|domain)"), "the name of a machine"),
    (re.compile(r"(.*_)?(user|username|user_?name|login|owner|author|account|home)"), "the name of a person"),
    (re.compile(r"(.*_)?(serial|serial_?number|uuid|guid|mac|mac_address|ip|ip_address)"), "one specimen of a machine"),
    (re.compile(r"(.*_)?(email|e_mail|mail|phone|address)"), "an address"),
)
_VALUES: Final = (
    (re.compile(r"(/(home|Users|root)/|^/root$|~/|[A-Za-z]:\\Users\\)"), "a path into somebody's home"),
    (re.compile(r"[^\s@]+@[^\s@]+\.[^\s@]+"), "an e-mail address"),
    (re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"), "a UUID"),
    (re.compile(r"\b([0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}\b"), "the address of a network card"),
    (re.compile(r"\b[0-9]{12,}\b|(?i:serial (no|number)|s/n\b)"), "a serial number"),
)


def what_identifies(name: str, text: str) -> str | None:
    """Return what a name and its text look like that should not be told; None where nothing is found."""
    for pattern, what in _NAMES:
        if pattern.fullmatch(name):
            return what
    for pattern, what in _VALUES:
        if pattern.search(text):
            return what
    return None
