"""The store: all that must survive, in one database."""
