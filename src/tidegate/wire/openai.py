"""OpenAI's dialect of JSON, both directions: requests in `openai_request`, answers and errors in `openai_response`."""

from tidegate.wire.openai_request import parse_request, rewrite_body
from tidegate.wire.openai_response import (
    AnswerFacts,
    encode_error_event,
    model_object,
    models_list,
    read_answer,
    token_count_answer,
)

__all__ = [
    "AnswerFacts",
    "encode_error_event",
    "model_object",
    "models_list",
    "parse_request",
    "read_answer",
    "rewrite_body",
    "token_count_answer",
]
