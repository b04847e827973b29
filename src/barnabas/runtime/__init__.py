"""The only doors to time, timers, files, sockets, threads and chance.

Everything else in the project gets these by constructor; `barnabas.sim` has a simulated twin of
each, so that whole clusters run in virtual time from one seed.
"""
