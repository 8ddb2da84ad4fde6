"""How vmnest talks to AWS, and how the local cloud answers as AWS does.

``signing`` and ``shapes`` are pure: values in, values out, for both ends of the wire. ``sources`` finds keys,
``service`` makes calls. Imports what lies below it (transport, wire); botocore is touched in this room only, and then
late. Road 1 (a command) crosses it on the way out, road 5 (the local cloud) on the way in.
"""
