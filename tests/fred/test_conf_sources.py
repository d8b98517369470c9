"""Where values come from: environment over file over default; secrets from files; the file is read strictly."""

import json

import pytest

from fred import conf
from tests.fred.settings_of import BACKEND, SECRET, good, with_backends


def write(tmp_path, text):
    path = tmp_path / "provider.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def problems(variables, **options):
    with pytest.raises(conf.ConfigError) as caught:
        conf.load_provider(variables, **options)
    return str(caught.value).splitlines()


def test_the_environment_wins_over_the_file_and_the_file_over_the_default(tmp_path):
    path = write(tmp_path, "gas_limit: 5\nGas_Price: 7\nmax_gas_limit: 9\n")
    loaded = conf.load_provider(good(PROVIDER_GAS_LIMIT="6", PROVIDER_CONFIG=path))
    assert (loaded.tree.gas_limit, loaded.tree.gas_price, loaded.tree.max_gas_limit) == (6, 7, 9)
    assert [loaded.source_of(key) for key in ("gas_limit", "gas_price", "fee_denom")] == ["env", "file", "default"]


def test_every_key_of_a_whole_file_is_read_without_any_variable(tmp_path):
    path = write(
        tmp_path,
        f"""
provider_uuid: "5b0e6b3e-4b4e-4a36-8a5e-0a8c3a1c7d11"
provider_address: "manifest1qypqxpq9qcrsszg2pvxq6rs0zqg3yyc57qwfj5"
keyring_dir: /var/lib/provider/keys
key_name: provider
callback_base_url: https://fred.example
callback_secret: {SECRET}
reconciliation_interval: 2m
production_mode: false
trusted_proxies: [10.20.0.0/16]
rate_limit_rps: 2.5
backends:
  - {{name: docker-1, url: "https://10.20.0.11:9001", default: true, skus: ["0f0e7a52-5f0a-4c63-9a3e-2a5d9d0a1b01"]}}
""",
    )
    tree = conf.load_provider({"PROVIDER_CONFIG": path}).tree
    assert tree.reconciliation_interval.total_seconds() == 120
    assert tree.rate_limit_rps == 2.5
    assert str(tree.backends[0].skus[0]) == "0f0e7a52-5f0a-4c63-9a3e-2a5d9d0a1b01"


def test_the_flag_wins_over_the_variable(tmp_path):
    path = write(tmp_path, "gas_limit: 5\n")
    assert conf.load_provider(good(PROVIDER_CONFIG="/nowhere"), path=path).tree.gas_limit == 5


def test_an_empty_variable_counts_as_not_set():
    assert conf.load_provider(good(PROVIDER_GAS_LIMIT="")).tree.gas_limit == 1_500_000


def test_a_list_is_emptied_by_brackets():
    assert conf.load_provider(good(PROVIDER_CORS_ORIGINS="[]")).tree.cors_origins == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "expected the node content"),
        ("- a\n", "the top level is not a mapping"),
        ("gas_limit: 1\ngas_limit: 2\n", "stands twice"),
        ("gas_limit: 1\nGAS_LIMIT: 2\n", "stands twice"),
        ("gas_limit: 1\n---\ngas_price: 2\n", "single document"),
        ("key_name: &a x\nkeyring_dir: *a\n", "aliases are not allowed"),
        ("key_name: !!python/object:os.system x\n", "could not determine a constructor"),
    ],
)
def test_a_file_that_cannot_be_parsed_is_fatal(tmp_path, text, message):
    (line,) = problems(good(PROVIDER_CONFIG=write(tmp_path, text)))
    assert line.startswith("failed to load config: failed to read config file: ")
    assert message in line


def test_a_file_that_is_not_there_is_fatal():
    (line,) = problems(good(PROVIDER_CONFIG="/nowhere/provider.yaml"))
    assert line.startswith("failed to load config: failed to read config file: /nowhere/provider.yaml: ")


def test_an_empty_file_is_no_settings(tmp_path):
    assert conf.load_provider(good(PROVIDER_CONFIG=write(tmp_path, ""))).tree.gas_price == 25


def test_unknown_keys_of_the_file_are_named_with_a_guess(tmp_path):
    (line,) = problems(good(PROVIDER_CONFIG=write(tmp_path, "reconcilation_interval: 5m\n")))
    assert "unknown key: reconcilation_interval" in line
    assert "reconciliation_interval" in line.partition("write")[2]


def test_unknown_keys_of_a_backend_are_named_with_its_index(tmp_path):
    path = write(tmp_path, "backends:\n  - {name: a, url: http://x}\n  - {name: b, url: http://x, colour: red}\n")
    (line,) = problems(good(PROVIDER_BACKENDS=None, PROVIDER_CONFIG=path))
    assert "backends[1]: unknown key: colour" in line


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("withdraw_interval: 60", "withdraw_interval: 60 has no unit"),
        ("production_mode: yes", "production_mode: 'yes' is not a boolean"),
        ("gas_limit: 1.5", "gas_limit: 1.5 is not an integer"),
        ("gas_limit: 0x10", "gas_limit: '0x10' is not an integer"),
        ("key_name: 7", "key_name: 7 is not text"),
        ("cors_origins: [a, 1]", "cors_origins: every item must be text"),
        ("rate_limit_rps: .nan", "rate_limit_rps must not be NaN"),
    ],
)
def test_a_value_of_the_file_has_the_syntax_of_its_key(tmp_path, text, message):
    key = text.partition(":")[0]
    (line,) = problems(good(PROVIDER_CONFIG=write(tmp_path, text + "\n"), **{f"PROVIDER_{key.upper()}": None}))
    assert message in line


def test_unknown_variables_only_warn_and_show_no_value():
    loaded = conf.load_provider(good(PROVIDER_COLOUR="red", PROVIDER_BACKEND_DOCKER_1_HMAC_SECRET=SECRET))
    assert loaded.warnings == ("unknown PROVIDER_ variables are ignored: PROVIDER_COLOUR",)


def test_a_secret_may_stand_in_a_file_less_one_newline(tmp_path):
    path = tmp_path / "secret"
    path.write_text(f"{SECRET}\n\n", encoding="utf-8")
    loaded = conf.load_provider(good(PROVIDER_CALLBACK_SECRET=None, PROVIDER_CALLBACK_SECRET_FILE=str(path)))
    assert loaded.tree.callback_secret.get_secret_value() == f"{SECRET}\n"
    assert loaded.source_of("callback_secret") == "env file"


def test_a_secret_and_its_file_together_are_refused(tmp_path):
    (line,) = problems(good(PROVIDER_CALLBACK_SECRET_FILE=str(tmp_path / "x")))
    assert "PROVIDER_CALLBACK_SECRET and PROVIDER_CALLBACK_SECRET_FILE" in line
    assert SECRET not in line


def test_a_secret_file_that_is_not_there_is_one_problem():
    (line,) = problems(good(PROVIDER_CALLBACK_SECRET=None, PROVIDER_CALLBACK_SECRET_FILE="/nowhere"))
    assert "PROVIDER_CALLBACK_SECRET_FILE cannot be read" in line


def test_a_secret_with_a_dollar_is_taken_as_it_is():
    secret = "$" + SECRET
    assert conf.load_provider(good(PROVIDER_CALLBACK_SECRET=secret)).tree.callback_secret.get_secret_value() == secret


def test_a_backends_own_key_is_taken_from_its_variable_first(tmp_path):
    path = tmp_path / "secret"
    path.write_text("f" * 40 + "\n", encoding="utf-8")
    variables = with_backends(
        {"hmac_secret": SECRET, "name": "a.b"},
        {"hmac_secret": SECRET, "name": "c"},
        PROVIDER_BACKEND_A_B_HMAC_SECRET="e" * 40,
        PROVIDER_BACKEND_A_B_HMAC_SECRET_PREVIOUS="d" * 40,
        PROVIDER_BACKEND_C_HMAC_SECRET_FILE=str(path),
    )
    tree = conf.load_provider(variables).tree
    assert tree.hmac_key("a.b") == "e" * 40
    assert tree.previous_hmac_key("a.b") == "d" * 40
    assert tree.hmac_key("c") == "f" * 40


def test_two_backends_with_one_variable_are_refused():
    variables = with_backends({"name": "a-b"}, {"name": "a.b"}, PROVIDER_BACKEND_A_B_HMAC_SECRET=SECRET)
    assert any("would be the key of both a-b and a.b" in line for line in problems(variables))


def test_backends_may_be_json_in_the_environment():
    entries = [{**BACKEND, "timeout": "5s", "Default": True}]
    assert conf.load_provider(good(PROVIDER_BACKENDS=json.dumps(entries))).tree.backends[0].default
