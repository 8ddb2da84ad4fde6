"""The host's side of the agent protocol: client, streamed answers, tokens. Knows no sandbox and no control plane."""
