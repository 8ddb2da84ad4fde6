"""The content of an image: find its directory, look at what would go into it, pack it as a zip.

May import what lies below it, aws and control among it. Nothing in here prints; what a user should know is handed
out as warnings.
"""

from __future__ import annotations

from .checking import check, check_name, check_settings
from .packing import Package, pack
from .source import Source, find

__all__ = ["Package", "Source", "check", "check_name", "check_settings", "find", "pack"]
