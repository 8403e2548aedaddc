"""The engine on a schema of a PostgreSQL database."""
