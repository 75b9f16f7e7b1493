"""What every command shares: options, streams, words for people, statuses, files."""
