"""What the database knows: plain functions over a connection. No streams, no printing."""
