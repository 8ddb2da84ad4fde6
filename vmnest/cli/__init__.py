"""The command line: turns words into a call of ``ops``, and its answer into text or JSON. Decides nothing.

``main`` is the road; ``verbs`` lists what there is, ``words`` takes a command line apart, one module for each group of
verbs holds their options, ``render`` and ``terminal`` write. A command loads its own group only: start-up is a feature.
"""
