"""Interfaces to time, timers, files, sockets, threads and random numbers.

The rest of the project receives them as constructor arguments, and uses no other access.
`barnabas.sim` has a simulated implementation of each, so that whole clusters run in virtual time
from one seed.
"""
