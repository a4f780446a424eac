"""The version of this software, from the installed package."""

from importlib.metadata import version

VERSION = version("decided")
