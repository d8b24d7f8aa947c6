"""The environment and the defaults: hosted upstreams by their keys, and routes where none are written."""

from __future__ import annotations

import pytest

from tidegate.config.environment import left_alone, with_environment
from tidegate.config.load import Loaded, load_text
from tidegate.config.schema import Configuration, DialectName, LocalEngineSection
from tidegate.domain.units import Secret

LOCAL_MODEL = "smollm2-135m-instruct"
ALL_KEYS = {"OPENROUTER_API_KEY": "or", "DASHSCOPE_API_KEY": "ds", "OPENAI_API_KEY": "oa"}


def effective(text: str, environ: dict[str, str]) -> Configuration:
    loaded = load_text(text, environ)
    assert isinstance(loaded, Loaded), loaded
    return with_environment(loaded.configuration, environ)


def routes(configuration: Configuration) -> dict[str, list[str]]:
    return {route.model: [target.upstream for target in route.targets] for route in configuration.routes}


def test_without_anything_the_local_engine_serves_its_own_model() -> None:
    """A gateway that was told nothing has one model, and a misspelt name stays an error."""
    configuration = effective("", {})
    assert configuration.upstreams == {}
    assert routes(configuration) == {LOCAL_MODEL: ["local"]}
    assert {LOCAL_MODEL} == {target.model for route in configuration.routes for target in route.targets}


def test_each_key_enables_its_provider() -> None:
    """Three keys give three upstreams at their own addresses, with the local engine behind each and no route for unknown names."""
    configuration = effective("", ALL_KEYS)
    assert {
        "openrouter": (DialectName.OPENROUTER, "https://openrouter.ai/api/v1", Secret("or")),
        "dashscope": (DialectName.DASHSCOPE, "https://dashscope.aliyuncs.com/compatible-mode/v1", Secret("ds")),
        "openai": (DialectName.OPENAI, "https://api.openai.com/v1", Secret("oa")),
    } == {name: (upstream.dialect, upstream.base_url, upstream.api_key) for name, upstream in configuration.upstreams.items()}
    assert routes(configuration) == {
        LOCAL_MODEL: ["local"],
        "*/*": ["openrouter", "local"],
        "qwen*": ["dashscope", "local"],
        "gpt-*": ["openai", "local"],
        "o*": ["openai", "local"],
        "text-embedding-*": ["openai"],
    }
    assert configuration.upstreams["dashscope"].tokenizer == "qwen3.6"
    assert "qwen/qwen3.6-plus" in configuration.upstreams["openrouter"].models


def test_an_empty_key_enables_nothing() -> None:
    """A variable that is set but empty, or blank, is as good as none."""
    assert effective("", {"OPENROUTER_API_KEY": "", "DASHSCOPE_API_KEY": " \n"}).upstreams == {}


def test_a_key_loses_the_line_break_that_a_file_left_on_it() -> None:
    """A key read from a file with a final line break still works."""
    assert Secret("k") == effective("", {"OPENROUTER_API_KEY": "k\n"}).upstreams["openrouter"].api_key


def test_dashscope_in_another_region() -> None:
    """`DASHSCOPE_BASE_URL` moves the address."""
    environ = {"DASHSCOPE_API_KEY": "k", "DASHSCOPE_BASE_URL": "https://dashscope-intl.aliyuncs.com/compatible-mode/v1"}
    assert environ["DASHSCOPE_BASE_URL"] == effective("", environ).upstreams["dashscope"].base_url


@pytest.mark.parametrize("address", ["http://127.0.0.1:8080/v1", "https://gateway.example.com/v1", "nonsense"])
def test_a_key_whose_base_url_points_elsewhere_is_not_sent_to_openai(address: str) -> None:
    """Applications set `OPENAI_BASE_URL` to Tidegate; the key beside it is Tidegate's, and must not leave for OpenAI."""
    environ = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": address}
    assert effective("", environ).upstreams == {}
    assert ["OPENAI_BASE_URL points elsewhere" in sentence for sentence in left_alone(Configuration(), environ)] == [True]


def test_openai_s_own_base_url_does_no_harm() -> None:
    """With the variable at OpenAI's address the key is OpenAI's; the address is ours all the same."""
    environ = {"OPENAI_API_KEY": "k", "OPENAI_BASE_URL": "https://api.openai.com/v1/"}
    assert effective("", environ).upstreams["openai"].base_url == "https://api.openai.com/v1"


@pytest.mark.parametrize(
    "text",
    [
        "upstreams: {openrouter: {dialect: vllm, base_url: 'http://h/v1'}}",
        "upstreams: {mine: {dialect: openrouter, base_url: 'https://openrouter.ai/api/v1'}}",
    ],
)
def test_a_provider_in_the_file_is_left_as_it_is(text: str) -> None:
    """The file wins over the environment, by name and by dialect, and the key that is not used is told."""
    environ = {"OPENROUTER_API_KEY": "k"}
    configuration = effective(text, environ)
    assert len(configuration.upstreams) == 1
    assert [sentence.split(":")[0] for sentence in left_alone(configuration, environ)] == ["OPENROUTER_API_KEY enables nothing"]


def test_a_key_that_is_used_is_not_told_as_unused() -> None:
    """Neither an upstream made by the environment nor one that names the variable is complained of."""
    environ = {"OPENROUTER_API_KEY": "k"}
    text = "upstreams: {mine: {dialect: openrouter, base_url: 'https://openrouter.ai/api/v1', api_key: '${OPENROUTER_API_KEY}'}}"
    assert left_alone(effective("", environ), environ) == []
    assert left_alone(effective(text, environ), environ) == []


def test_another_server_of_openai_s_dialect_does_not_hide_openai() -> None:
    """Many servers speak OpenAI's dialect; only one at OpenAI's address is OpenAI."""
    text = "upstreams: {mine: {dialect: openai, base_url: 'https://h.example.com/v1', models: [m]}}"
    assert list(effective(text, {"OPENAI_API_KEY": "k"}).upstreams) == ["mine", "openai"]


def test_written_routes_are_kept() -> None:
    """Where the file has routes, the environment adds upstreams but no routes."""
    configuration = effective("routes: [{model: '*', targets: [{upstream: openrouter}]}]", {"OPENROUTER_API_KEY": "k"})
    assert routes(configuration) == {"*": ["openrouter"]}


def test_upstreams_of_the_file_serve_their_models() -> None:
    """Names come before patterns, narrow before wide; two upstreams of one model stand by for each other; the engine is last."""
    text = """
upstreams:
  wide: {dialect: vllm, base_url: 'http://a/v1', models: ['*', 'q*', m]}
  narrow: {dialect: vllm, base_url: 'http://b/v1', models: ['qwen-*', m, bge-embed]}
"""
    configuration = effective(text, {})
    assert routes(configuration) == {
        "m": ["wide", "narrow", "local"],
        "bge-embed": ["narrow"],
        LOCAL_MODEL: ["local"],
        "qwen-*": ["narrow", "local"],
        "q*": ["wide", "local"],
        "*": ["wide", "local"],
    }
    assert [route.model for route in configuration.routes] == ["m", "bge-embed", LOCAL_MODEL, "qwen-*", "q*", "*"]


def test_a_hosted_upstream_of_the_file_without_models_takes_its_providers_names() -> None:
    """Writing only address and key of a hosted provider routes the same names as its variable would."""
    text = "upstreams: {mine: {dialect: dashscope, base_url: 'https://h.example.com/v1', api_key: k}}"
    assert routes(effective(text, {})) == {"qwen*": ["mine", "local"], LOCAL_MODEL: ["local"]}


def test_without_the_engine_nothing_stands_behind() -> None:
    """A disabled engine is in no derived route."""
    configuration = with_environment(Configuration(local_engine=LocalEngineSection(enabled=False)), ALL_KEYS)
    assert "local" not in {target.upstream for route in configuration.routes for target in route.targets}
    assert LOCAL_MODEL not in routes(configuration)


def test_law_applying_the_environment_again_changes_nothing() -> None:
    """Completing a completed configuration gives the same one."""
    for environ in ({}, ALL_KEYS):
        once = with_environment(Configuration(), environ)
        assert once == with_environment(once, environ)
