"""Tests of the embedded cluster."""
