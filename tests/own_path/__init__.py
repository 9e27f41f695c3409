"""Tests of our own: real noise, real files, real processes, judged by rules of our own."""
