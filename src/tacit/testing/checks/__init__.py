"""The checks of an agent, one by one."""
