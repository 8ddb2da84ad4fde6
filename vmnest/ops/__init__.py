"""What a user can do, as plain functions: keyword-only arguments in, plain JSON values out.

Both fronts call these and only these: ``cli --json`` prints what they return, the MCP server's tools answer with it.
Nothing here prints, asks, or exits.
"""
