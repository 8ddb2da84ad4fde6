"""A guest agent as a real process."""
