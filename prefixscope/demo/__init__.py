"""Labelled synthetic traffic: five weeks as ordinary files, then live rows and pages."""

from prefixscope.demo.facts import Facts
from prefixscope.demo.files import DemoFiles, write_demo
from prefixscope.demo.live import LiveDemo

__all__ = ["DemoFiles", "Facts", "LiveDemo", "write_demo"]
