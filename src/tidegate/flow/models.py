"""The answers of `/v1/models`: what a caller may use of what is served."""

from __future__ import annotations

from tidegate.domain.principal import Principal
from tidegate.domain.request import Operation
from tidegate.errors import ClientError
from tidegate.flow.facts import Policies, RequestFacts
from tidegate.flow.refusals import model_unknown
from tidegate.wire.openai import model_object, models_list


def answer_models(policies: Policies, facts: RequestFacts, principal: Principal) -> bytes | ClientError:
    """Give the list, or the one model that the path names."""
    routes, created = policies.routes, policies.models_created_at
    names = [name for name in routes.listed_models if routes.allows(principal.models, name)]
    if facts.operation is Operation.MODELS:
        return models_list(names, created)
    wanted = facts.path_argument
    return model_object(wanted, created) if wanted in names else model_unknown(wanted, names)
