"""The curators: the one gate between raw data and everything that is published."""
