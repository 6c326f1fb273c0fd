"""``python3 -m lab …``. This file must parse on any Python 3 so that an old one gets a clear sentence."""

import sys

if sys.version_info < (3, 11):
    sys.exit(
        "This needs Python 3.11, 3.12 or 3.13 and was started with %d.%d: start it with another one, "
        "for example `python3.11 -m lab` (from python.org, uv or conda)." % sys.version_info[:2]
    )

if __name__ == "__main__":
    from lab.bootstrap import main

    sys.exit(main(sys.argv[1:]))
