"""Queries of the billing module: request bytes to answer bytes, against a state as of one height."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from leases.chain.devchain import settlement
from leases.chain.devchain.chain import Chain, View
from leases.chain.devchain.context import pb_coins
from leases.chain.devchain.encoding import LeaseWire, credit_message, nested
from leases.chain.devchain.errors import QueryRefused
from leases.chain.devchain.forms import UUID_V7
from leases.chain.devchain.keys import Coins, as_coins, credit_address, decode_address, subtract_coins
from leases.chain.devchain.page_faults import disturb
from leases.chain.devchain.paging import cut
from leases.chain.devchain.records import ACTIVE, CreditAccount, Lease
from leases.chain.proto import billing_pb2 as pb
from leases.chain.proto.pagination_pb2 import PageRequest

Handler = Callable[[Chain, View, bytes], bytes]
_WITHDRAWABLE_LIMIT = 1_000
_STRICT_DEFAULT, _STRICT_LIMIT = 50, 100


def _required(value: str, name: str) -> None:
    if not value:
        raise QueryRefused("INVALID_ARGUMENT", f"{name} cannot be empty")


def _tenant(value: str) -> str:
    _required(value, "tenant")
    if decode_address(value) is None:
        raise QueryRefused("INVALID_ARGUMENT", "invalid tenant address")
    return value


def _vanished(chain: Chain) -> set[str]:
    return {str(rule.parameters.get("uuid")) for rule in chain.faults.all() if rule.effect == "lease_vanish"}


class BillingQueries:
    """The query service of the billing module."""

    def __init__(self) -> None:
        self._wire = LeaseWire()

    def handlers(self) -> dict[str, Handler]:
        """Method name to handler."""
        return {
            "Params": self.params,
            "Lease": self.lease,
            "Leases": self._listing("Leases", "all", ""),
            "LeasesByTenant": self._listing("LeasesByTenant", "tenant", "tenant"),
            "LeasesByProvider": self._listing("LeasesByProvider", "provider", "provider_uuid"),
            "LeasesBySKU": self._listing("LeasesBySKU", "sku", "sku_uuid"),
            "CreditAccount": self.credit_account,
            "CreditAddress": self.credit_address,
            "CreditAccounts": self.credit_accounts,
            "CreditEstimate": self.credit_estimate,
            "WithdrawableAmount": self.withdrawable,
            "ProviderWithdrawable": self.provider_withdrawable,
            "LeaseByCustomDomain": self.by_domain,
        }

    def params(self, _chain: Chain, view: View, _request: bytes) -> bytes:
        """Parameters of the module."""
        params = pb.Params(**view.state.params._asdict())
        return pb.QueryParamsResponse(params=params).SerializeToString()

    def lease(self, chain: Chain, view: View, request: bytes) -> bytes:
        """One lease by uuid."""
        uuid = pb.QueryLeaseRequest.FromString(request).lease_uuid
        _required(uuid, "lease_uuid")
        return self._wire.field(self._found(chain, view, uuid), reserved=chain.profile.strict)

    def _found(self, chain: Chain, view: View, uuid: str) -> Lease:
        lease = view.state.leases.get(uuid)
        if lease is None or uuid in _vanished(chain):
            raise QueryRefused("NOT_FOUND", "lease not found")
        return lease

    def _listing(self, method: str, kind: str, field: str) -> Handler:
        request_class, path = getattr(pb, f"Query{method}Request"), f"/liftedinit.billing.v1.Query/{method}"

        def answer(chain: Chain, view: View, data: bytes) -> bytes:
            request = request_class.FromString(data)
            key = str(getattr(request, field)) if field else ""
            if kind == "tenant":
                _tenant(key)
            elif field:
                _required(key, field)
                if chain.profile.strict and not UUID_V7(key):
                    raise QueryRefused("INVALID_ARGUMENT", f"{field} must be a valid UUIDv7")
            uuids = view.state.lease_uuids(kind, key, request.state_filter)
            vanished = _vanished(chain)
            if vanished:
                uuids = [uuid for uuid in uuids if uuid not in vanished]
            strict = chain.profile.strict
            page = disturb(chain, path, data, cut(uuids, request.pagination, strict=strict))
            leases, wire = view.state.leases, self._wire
            parts = [wire.field(leases[uuid], reserved=strict) for uuid in page.keys]
            return b"".join(parts) + nested(2, page.response.SerializeToString())

        return answer

    def _credit(self, view: View, tenant: str) -> CreditAccount:
        account = view.state.credits.get(_tenant(tenant))
        if account is None:
            raise QueryRefused("NOT_FOUND", "credit account not found")
        return account

    def credit_account(self, chain: Chain, view: View, request: bytes) -> bytes:
        """Credit of a tenant: its account, its balances, what is free. The strict chain pages the balances."""
        query = pb.QueryCreditAccountRequest.FromString(request)
        account = self._credit(view, query.tenant)
        if chain.profile.strict:
            return _paged_credit(view, account, query.pagination)
        balances = _balances(view, account)
        available = subtract_coins(balances, account.reserved)
        return pb.QueryCreditAccountResponse(
            credit_account=credit_message(account),
            balances=pb_coins(balances),
            available_balances=pb_coins(available),
        ).SerializeToString()

    def credit_address(self, _chain: Chain, _view: View, request: bytes) -> bytes:
        """Where the credit of a tenant lies, whether or not it has any."""
        tenant = _tenant(pb.QueryCreditAddressRequest.FromString(request).tenant)
        return pb.QueryCreditAddressResponse(credit_address=credit_address(tenant)).SerializeToString()

    def credit_accounts(self, chain: Chain, view: View, request: bytes) -> bytes:
        """All credit accounts."""
        wanted = pb.QueryCreditAccountsRequest.FromString(request).pagination
        page = cut(sorted(view.state.credits), wanted, strict=chain.profile.strict)
        accounts = [credit_message(view.state.credits[tenant]) for tenant in page.keys]
        answer = pb.QueryCreditAccountsResponse(credit_accounts=accounts, pagination=page.response)
        return answer.SerializeToString()

    def credit_estimate(self, _chain: Chain, view: View, request: bytes) -> bytes:
        """How long the credit lasts at the rate of the ACTIVE leases."""
        account = self._credit(view, pb.QueryCreditEstimateRequest.FromString(request).tenant)
        active = view.state.lease_uuids("tenant", account.tenant, ACTIVE)
        rate = _rates(view.state.leases[uuid] for uuid in active[:100])
        balances = dict(view.state.coins_of(account.address))
        seconds = min((balances.get(denom, 0) // each for denom, each in rate), default=0)
        return pb.QueryCreditEstimateResponse(
            current_balance=pb_coins(as_coins(balances)),
            total_rate_per_second=pb_coins(rate),
            estimated_duration_seconds=seconds,
            active_lease_count=len(active),
        ).SerializeToString()

    def withdrawable(self, chain: Chain, view: View, request: bytes) -> bytes:
        """What a lease would pay now."""
        uuid = pb.QueryWithdrawableAmountRequest.FromString(request).lease_uuid
        _required(uuid, "lease_uuid")
        amounts = _payable(chain, view, self._found(chain, view, uuid))
        return pb.QueryWithdrawableAmountResponse(amounts=pb_coins(amounts)).SerializeToString()

    def provider_withdrawable(self, chain: Chain, view: View, request: bytes) -> bytes:
        """What the leases of a provider would pay now: the first ones, or the ACTIVE ones page by page."""
        query = pb.QueryProviderWithdrawableRequest.FromString(request)
        _required(query.provider_uuid, "provider_uuid")
        if chain.profile.strict:
            return _strict_withdrawable(chain, view, query)
        if not chain.profile.cursors:
            return _first_withdrawable(chain, view, query)
        query.pagination.limit = min(query.pagination.limit or 100, _WITHDRAWABLE_LIMIT)
        page = cut(view.state.lease_uuids("provider", query.provider_uuid, ACTIVE), query.pagination)
        amounts = [_payable(chain, view, view.state.leases[uuid]) for uuid in page.keys]
        return pb.QueryProviderWithdrawableResponse(
            amounts=pb_coins(settlement.total(amounts)),
            lease_count=sum(1 for amount in amounts if amount),
            pagination=page.response,
        ).SerializeToString()

    def by_domain(self, chain: Chain, view: View, request: bytes) -> bytes:
        """The lease that claims a custom domain."""
        domain = pb.QueryLeaseByCustomDomainRequest.FromString(request).custom_domain.strip().lower()
        _required(domain, "custom_domain")
        claim = view.state.domains.get(domain)
        if claim is None:
            raise QueryRefused("NOT_FOUND", f"no lease with custom_domain {domain}")
        lease = self._wire.field(view.state.leases[claim[0]], reserved=chain.profile.strict)
        return lease + pb.QueryLeaseByCustomDomainResponse(service_name=claim[1]).SerializeToString()


def _payable(chain: Chain, view: View, lease: Lease) -> Coins:
    until = view.time if lease.state == ACTIVE else lease.closed_at
    return settlement.accrued(view.state, lease, until, strict=chain.profile.strict)[0] if until else ()


def _first_withdrawable(chain: Chain, view: View, query: pb.QueryProviderWithdrawableRequest) -> bytes:
    """Without cursors: the first leases of any state; whether there are more is all that is said of the others."""
    limit = min(query.limit or 100, _WITHDRAWABLE_LIMIT)
    uuids = view.state.lease_uuids("provider", query.provider_uuid, 0)
    amounts = [_payable(chain, view, view.state.leases[uuid]) for uuid in uuids[:limit]]
    return pb.QueryProviderWithdrawableResponse(
        amounts=pb_coins(settlement.total(amounts)),
        lease_count=sum(1 for amount in amounts if amount),
        has_more=len(uuids) > limit,
    ).SerializeToString()


def _strict_withdrawable(chain: Chain, view: View, query: pb.QueryProviderWithdrawableRequest) -> bytes:
    """The strict chain: pages by key only; it names leases whose payout cannot be received."""
    _by_key_only(query.pagination)
    query.pagination.limit = min(query.pagination.limit or _STRICT_DEFAULT, _STRICT_LIMIT)
    uuids = view.state.lease_uuids("provider", query.provider_uuid, ACTIVE)
    page = cut(uuids, query.pagination, strict=True)
    provider = view.state.providers.get(query.provider_uuid)
    refused = provider is not None and provider.payout_address in settlement.CANNOT_RECEIVE
    good = [] if refused else page.keys
    return pb.QueryProviderWithdrawableResponse(
        amounts=pb_coins(settlement.total([_payable(chain, view, view.state.leases[uuid]) for uuid in good])),
        lease_count=len(good),
        pagination=page.response,
        failed_lease_uuids=page.keys if refused else [],
    ).SerializeToString()


def _by_key_only(request: PageRequest) -> None:
    if request.offset or request.count_total:
        raise QueryRefused("INVALID_ARGUMENT", "offset and count_total are not supported")


def _paged_credit(view: View, account: CreditAccount, request: PageRequest) -> bytes:
    """Balances of every denomination, by key only; rows without money use up room in a page and are left out."""
    _by_key_only(request)
    rows = sorted(denom for owner, denom in view.state.balances if owner == account.address)
    page = cut(rows, request, strict=True)
    held = {denom: view.state.balance(account.address, denom) for denom in page.keys}
    balances = as_coins(held)
    available = tuple(coin for coin in subtract_coins(balances, account.reserved) if coin[0] in held)
    return pb.QueryCreditAccountResponse(
        credit_account=credit_message(account),
        balances=pb_coins(balances),
        available_balances=pb_coins(available),
        pagination=page.response,
    ).SerializeToString()


def _rates(leases: Iterable[Lease]) -> Coins:
    return settlement.total([lease.rate() for lease in leases])


def _balances(view: View, account: CreditAccount) -> Coins:
    """Balances in the denominations that the tenant's leases use; all of them when there are none."""
    used = {denom for denom, _ in account.reserved}
    coins = view.state.coins_of(account.address)
    return tuple(coin for coin in coins if coin[0] in used) if used else coins
