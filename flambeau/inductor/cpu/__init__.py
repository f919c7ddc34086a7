"""Schedules as C++ with library calls, and how it is built and called."""
