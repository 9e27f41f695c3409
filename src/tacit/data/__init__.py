"""Episodes of users: as arrays, as tables and as logs. Raw and sensitive."""
