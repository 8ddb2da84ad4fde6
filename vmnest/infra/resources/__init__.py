"""The kinds of resources, one module for each: what is to happen to one (``plan``, pure), and doing it (``apply``).

``table`` has them in their order. A module also tells how one of its kind is looked at again and removed.
"""

from __future__ import annotations
