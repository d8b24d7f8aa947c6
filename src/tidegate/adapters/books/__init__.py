"""The books: a double-entry ledger of money, in SQLite or PostgreSQL, and the way from a worker into it.

Read `ledger` for what is kept and asked, `desk` for who writes it, `journal` for how a worker's entries get there.
"""
