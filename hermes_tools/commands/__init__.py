"""One short module per script: options in, calls to the store, records out."""

import gc

# What is loaded stays: looking for cycles in it costs a short run a tenth. `entry` turns it on.
gc.disable()
