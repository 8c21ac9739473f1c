"""`python -m wrt`: the command line, where `wrt` itself is not on the path."""

from wrt._cli.app import main

if __name__ == "__main__":
    main()
