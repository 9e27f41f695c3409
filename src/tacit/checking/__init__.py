"""The checks of :func:`tacit.check_agent`, one module for each thing that an agent promises."""
