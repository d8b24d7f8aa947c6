"""The order of the policies for one request, without I/O.

Read `request_flow` first. A driver calls `begin`, `receive` and `handle_timer`, and performs the actions each returns.
"""
