"""Settings of the books: whether money is kept account of, and where."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from tidegate.config.section import Positive, Section
from tidegate.domain.units import Secret


class BooksSection(Section, frozen=True, kw_only=True):
    """The double-entry ledger of what tenants were given, hold, and have spent."""

    enabled: Annotated[
        bool | None, Meta(description="Keep books (true) or not (false); without it, they are kept where there are prices or budgets.")
    ] = None
    database: Annotated[
        Secret | None,
        Meta(
            description="A SQLite file, or for several nodes a server, like `postgresql://user:password@host/database`; without it "
            "`books.sqlite` in the state directory."
        ),
    ] = None
    hold_expiry_s: Annotated[
        Positive, Meta(description="A hold whose request nobody ends is released after this; longer than any request takes.")
    ] = 3600.0
