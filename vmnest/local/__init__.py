"""The cloud on this machine: daemon, control plane, data plane, lifecycle of VMs, and the drivers that isolate them.

May import errors, deadline, settings, wire, rendezvous, aws.signing, aws.shapes and ``_guest.agentd.wire``; never
client code, and no client code imports it: ``daemon`` spawns ``python -m vmnest.local``. Road 5 runs through here:
HTTP → ``api`` → ``vms`` → ``drivers``, and HTTP → ``proxy`` → a port in the sandbox.
"""
