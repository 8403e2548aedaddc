"""Run the command line: ``python -m counterfoil``."""

from counterfoil.infrastructure.cli import main

if __name__ == "__main__":
    main()
