"""Privacy bugs to plant, by kind; hosts and plantings are in ``tacit.experiments.planted_bugs``."""
