"""Pushes to an agent that does not let our client certificate in: it says why, for us all of them stay in doubt."""

from datetime import timedelta

import pytest
from django.utils import timezone
from structlog.testing import capture_logs

from backends import targets
from backends.agent_tls import TlsFiles
from fred import breaker
from fred.conf import BackendConfig
from placements.models import Operation
from tests.backends.certificates import Authority
from tests.backends.servers import SECRET, mock_agent, served
from tests.factories.backends import BackendFactory
from tests.placements.due_rows import S, due, until
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pki")
    ours, theirs = Authority(folder), Authority(folder, "other-ca")
    return {
        "ca": ours.file,
        "server": ours.issue("server", addresses=["127.0.0.1"]),
        "cp": ours.issue("cp"),
        "other": ours.issue("other"),
        "expired": ours.issue("cp", lives=(-3, -1), to="expired"),
        "foreign": theirs.issue("cp"),
        "none": ("", ""),
    }


@pytest.fixture
def agent():
    return mock_agent()


@pytest.fixture
def configured(transactional_db, settings, valkey, pki, agent):
    """The only backend is that agent, which lets in who is called cp; we come with this certificate."""
    with served(agent, files=TlsFiles(*pki["server"], pki["ca"], frozenset({"cp"}))) as url:
        BackendFactory(name="mock-1", url=url)

        def come_as(client):
            certificate, key = pki[client]
            entry = BackendConfig(
                name="mock-1",
                url=url,
                timeout="5s",
                contract="v0_13",
                hmac_secret=SECRET,
                tls_ca_file=pki["ca"],
                tls_client_cert_file=certificate,
                tls_client_key_file=key,
            )
            settings.FRED = settings.FRED.model_copy(update={"backends": (entry,)})
            targets.forget()
            breaker.forget()

        yield come_as
    targets.forget()
    breaker.forget()


@pytest.mark.parametrize(
    ("client", "reason", "text"),
    [
        ("none", "no_certificate", "client did not present a certificate"),
        ("foreign", "unknown_authority", "client certificate signed by unknown authority"),
        ("expired", "expired", "client certificate has expired"),
        ("other", "name_not_allowed", "client certificate identity not allowed: other"),
    ],
)
def test_p15_p19_a_refused_client_certificate_leaves_all_in_doubt_and_opens_the_breaker(
    configured, make_sender, agent, client, reason, text
):
    configured(client)
    sender = make_sender()
    operations = [due() for _ in range(5)]
    with capture_logs() as lines:
        sender.pull()
        wait_until(lambda: breaker.is_open("mock-1"))
        wait_until(lambda: sender.is_idle)
        knocked = agent.metrics.tls_refused[reason]
    assert knocked >= 5
    assert {name for name, count in agent.metrics.tls_refused.items() if count} == {reason}
    assert {line["error"] for line in lines if line["event"] == "agent.tls_refused"} == {text}
    assert agent.metrics.requests == {}
    assert set(Operation.objects.values_list("state", "refusal")) == {(S.IN_DOUBT, "")}
    assert len(operations) == Operation.objects.count()

    last = due()
    sender.pull()
    until(last, state=S.RESERVED, refusal="not_sent")
    assert last.due_at > timezone.now() + timedelta(seconds=50)
    assert agent.metrics.tls_refused[reason] == knocked


def test_p15_a_client_of_the_right_name_gets_its_provision_done(configured, make_sender, agent):
    configured("cp")
    operation = due()
    make_sender().pull()
    until(operation, state=S.ACCEPTED)
    assert agent.metrics.requests["provision", 202] == 1
