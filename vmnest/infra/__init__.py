"""Infrastructure: from ``sandbox.yaml`` to the role, bucket, image and connector that sandboxes need, and back.

``config`` reads what is wanted, ``plan`` compares it with what there is (pure), ``apply`` and ``resources`` act,
``state`` records it after every step, and ``outputs`` hands what came of it to whoever starts a sandbox. ``stacks`` is
the door. The room may import everything below it (``target``, ``control``, ``aws``, ``guest_image``), and only
``config`` knows YAML.
"""

from __future__ import annotations
