"""The console: pages under `/console` for people, and under `/admin` the figures on them, for everybody else who has an admin key.

Read `console` for its parts, `api` for the figures, `pages` for what a browser gets, `static/` for what runs there.
"""
