#!/usr/bin/env python
"""Fred's commands: `python manage.py help`."""

import os
import sys

from fred.management.entry import run

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "fred.settings")
    run(sys.argv)
