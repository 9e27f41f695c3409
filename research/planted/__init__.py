"""Privacy bugs to plant, by kind; hosts and plantings are in ``research.planted_bugs``."""
