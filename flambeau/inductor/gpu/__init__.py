"""Schedules as Triton kernels with library calls, and how they are launched."""
