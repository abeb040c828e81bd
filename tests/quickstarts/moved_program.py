"""The program, its usual address moved with those of the page: an exporter that somebody runs at
the usual one would take the page's rows and answer its questions."""

import os

from prefixscope import client
from prefixscope.cli import main

client.DEFAULT_URL = f"http://{os.environ['PREFIXSCOPE_SERVER__LISTEN']}"
main()
