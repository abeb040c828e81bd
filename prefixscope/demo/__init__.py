"""Labelled synthetic traffic: five weeks as ordinary files, then live rows and pages."""

from prefixscope.demo.files import DemoFiles, Facts, write_demo

__all__ = ["DemoFiles", "Facts", "write_demo"]
