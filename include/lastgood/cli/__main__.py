"""`python -m lastgood.cli`: the command line where its script is not on the path."""

from lastgood.cli import main

if __name__ == "__main__":
    main()
