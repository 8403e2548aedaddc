"""The journal on its engines, the runtime that calls hosts, and the command line."""
