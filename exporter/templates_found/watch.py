"""Looks for templates now and then while the exporter runs."""

import logging

from exporter.errors import PrefixscopeError
from exporter.judge_watch import SeldomWatch
from exporter.store.store import Store
from exporter.templates_found.find import find_templates

_log = logging.getLogger(__name__)

# The first time soon, as a name from the start is worth more than one found late.
FIRST_SECONDS, EVERY_SECONDS = 60.0, 600.0


class TemplateWatch(SeldomWatch):
    """Every ten minutes, in the background."""

    def __init__(self, store: Store) -> None:
        super().__init__("templates", FIRST_SECONDS, EVERY_SECONDS)
        self._store = store

    def judge_once(self) -> None:
        try:
            find_templates(self._store)
        except PrefixscopeError as error:  # the store's memory limit
            _log.warning("templates could not be put into rows: %s; trying again", error)
