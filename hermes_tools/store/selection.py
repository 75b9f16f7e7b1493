"""Which sessions are meant: filters as a value, and whether a conversation answers to them."""
