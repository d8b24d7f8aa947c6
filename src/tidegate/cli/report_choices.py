"""What can be chosen for reports on the command line; apart from them, so that naming the choices imports nothing."""

from __future__ import annotations

from enum import StrEnum


class ReportForm(StrEnum):
    TABLE = "table"
    CSV = "csv"
    JSON = "json"


class GroupName(StrEnum):
    """By what usage can be grouped; `billing.usage.GROUPS` has the same names."""

    KEY = "key"
    TENANT = "tenant"
    USER = "user"
    FEATURE = "feature"
    MODEL = "model"
    ROUTE = "route"
    UPSTREAM = "upstream"
    PRICE_VERSION = "price_version"
    EVIDENCE = "evidence"
