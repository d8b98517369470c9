"""Queries of the SKU module."""

from __future__ import annotations

from typing import Any

from leases.chain.devchain.chain import Chain, View
from leases.chain.devchain.encoding import provider_message, sku_message
from leases.chain.devchain.errors import QueryRefused
from leases.chain.devchain.paging import cut
from leases.chain.devchain.queries import Handler
from leases.chain.proto import sku_pb2


def _found(table: dict[str, Any], uuid: str, missing: str) -> Any:
    if not uuid:
        raise QueryRefused("INVALID_ARGUMENT", "uuid cannot be empty")
    record = table.get(uuid)
    if record is None:
        raise QueryRefused("NOT_FOUND", missing)
    return record


def _sku_params(_chain: Chain, view: View, _request: bytes) -> bytes:
    params = sku_pb2.Params(allowed_list=view.state.sku_allowed)
    return sku_pb2.QueryParamsResponse(params=params).SerializeToString()


def _provider(_chain: Chain, view: View, request: bytes) -> bytes:
    uuid = sku_pb2.QueryProviderRequest.FromString(request).uuid
    provider = _found(view.state.providers, uuid, "provider not found")
    return sku_pb2.QueryProviderResponse(provider=provider_message(provider)).SerializeToString()


def _providers(chain: Chain, view: View, request: bytes, *, by_address: bool = False) -> bytes:
    cls = sku_pb2.QueryProviderByAddressRequest if by_address else sku_pb2.QueryProvidersRequest
    query: Any = cls.FromString(request)
    if by_address and not query.address:
        raise QueryRefused("INVALID_ARGUMENT", "address cannot be empty")
    chosen = {
        uuid: provider
        for uuid, provider in view.state.providers.items()
        if (provider.active or not query.active_only) and (not by_address or provider.address == query.address)
    }
    page = cut(sorted(chosen), query.pagination, strict=chain.profile.strict)
    answer = sku_pb2.QueryProvidersResponse(
        providers=[provider_message(chosen[uuid]) for uuid in page.keys], pagination=page.response
    )
    return answer.SerializeToString()


def _providers_by_address(chain: Chain, view: View, request: bytes) -> bytes:
    return _providers(chain, view, request, by_address=True)


def _sku(_chain: Chain, view: View, request: bytes) -> bytes:
    sku = _found(view.state.skus, sku_pb2.QuerySKURequest.FromString(request).uuid, "sku not found")
    return sku_pb2.QuerySKUResponse(sku=sku_message(sku)).SerializeToString()


def _skus(chain: Chain, view: View, request: bytes, *, by_provider: bool = False) -> bytes:
    cls = sku_pb2.QuerySKUsByProviderRequest if by_provider else sku_pb2.QuerySKUsRequest
    query: Any = cls.FromString(request)
    if by_provider and not query.provider_uuid:
        raise QueryRefused("INVALID_ARGUMENT", "provider_uuid cannot be empty")
    chosen = {
        uuid: sku
        for uuid, sku in view.state.skus.items()
        if (sku.active or not query.active_only) and (not by_provider or sku.provider_uuid == query.provider_uuid)
    }
    page = cut(sorted(chosen), query.pagination, strict=chain.profile.strict)
    answer = sku_pb2.QuerySKUsResponse(skus=[sku_message(chosen[uuid]) for uuid in page.keys], pagination=page.response)
    return answer.SerializeToString()


def _skus_by_provider(chain: Chain, view: View, request: bytes) -> bytes:
    return _skus(chain, view, request, by_provider=True)


HANDLERS: dict[str, Handler] = {
    "Params": _sku_params,
    "Provider": _provider,
    "Providers": _providers,
    "ProviderByAddress": _providers_by_address,
    "SKU": _sku,
    "SKUs": _skus,
    "SKUsByProvider": _skus_by_provider,
}
