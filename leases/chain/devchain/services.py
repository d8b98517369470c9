"""Every gRPC method of the chain."""

from __future__ import annotations

from leases.chain.devchain import account_queries, node_queries, sku_queries, tx_queries
from leases.chain.devchain.queries import BillingQueries, Handler


def all_handlers() -> dict[str, Handler]:
    """Full method path to handler."""
    services = {
        "liftedinit.billing.v1.Query": BillingQueries().handlers(),
        "liftedinit.sku.v1.Query": sku_queries.HANDLERS,
        "cosmos.auth.v1beta1.Query": account_queries.AUTH,
        "cosmos.bank.v1beta1.Query": account_queries.BANK,
        "cosmos.authz.v1beta1.Query": account_queries.AUTHZ,
        "cosmos.tx.v1beta1.Service": tx_queries.HANDLERS,
        "cosmos.base.tendermint.v1beta1.Service": node_queries.HANDLERS,
    }
    return {f"/{service}/{name}": handler for service, methods in services.items() for name, handler in methods.items()}
