"""Reports over what was used and what it cost: usage, invoices, and the comparison with a provider's own figures.

They are computed from calls that ended, out of the books or out of the request records (`calls`). No worker imports any of this.
"""
