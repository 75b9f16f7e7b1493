"""One short module per script: options in, calls to the store, records out."""
