"""Experiments that run the library for real and draw what comes out.

Each is one file with a command line: what is run, how it is drawn. They share
:mod:`~research.command_lines` (command lines that refuse in one line) and
:mod:`~research.figures` (one look for all figures).
"""
