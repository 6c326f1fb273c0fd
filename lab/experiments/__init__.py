"""Experiments that several notebooks, tests or commands use: functions that run and return tables."""
