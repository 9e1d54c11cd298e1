"""Terrace: sorted bytes on disk behind a dict, in your process."""

from ._terracedb import *  # noqa: F403
from ._terracedb import __all__, __version__  # noqa: F401
