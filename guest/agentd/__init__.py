"""agentd: the agent inside a sandbox. It runs commands and moves files for the host, and answers lifecycle hooks.

Standard library only, Python 3.9 or later, relative imports only: the same files run as plain ``agentd`` inside an
image and are read by the host as ``vmnest._guest.agentd``.
"""

__version__ = "0.2.0"
