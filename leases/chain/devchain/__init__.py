"""A simulated Manifest chain for development and tests: one process, one validator, no Django.

It answers as far as a provider and its clients can see: gRPC, the RPC of CometBFT with its WebSocket, a part of the
REST gateway, and an admin API that only listens on the loopback address. Signatures, sequences, fees and the rules of
the billing and SKU modules are checked for real; consensus and proofs do not exist.

In a program or a test
----------------------
>>> from leases.chain import devchain
>>> with devchain.run() as chain:                      # free ports, a block per transaction, fixture `devnet`
...     [lease] = chain.create_leases(1)
...     chain.grpc, chain.rpc, chain.websocket, chain.rest, chain.admin     # addresses
...     chain.provider_uuid, chain.sku_uuid, chain.keys["provider"].address

`run(fixture=, chain_id=, block_mode=, block_interval=, ports=, profile=, min_gas_price=)` yields a
`leases.chain.devchain.running.RunningDevchain`; its methods may be called from any thread.

As a process
------------
`manage.py devchain` listens on 9090 (gRPC), 26657 (RPC and `/websocket`), 1317 (REST) and 127.0.0.1:26670 (admin).

    --host 127.0.0.1  --grpc-port  --rpc-port  --rest-port  --admin-port      0 takes a free port
    --chain-id ID  --fixture devnet|scenario|bare  --profile B
    --block-mode interval|instant|manual  --block-interval 1s  --min-gas-price 0
    --ready-file PATH      the JSON of `GET /admin/info`, written when every port answers

It prints that JSON on one line when it is ready and ends on SIGTERM or Ctrl-C.

Fixtures and keys
-----------------
`devnet` (default; chain id `manifest-localnet`): the provider `provider` with SKUs `docker-micro`, `docker-small`,
`docker-medium`, `docker-large`; credit for `tenant` and `t0` … `t19`. `scenario` (`manifest-ledger-beta`): only
accounts and money, 1 umfx per gas, time-out 60 s, minimum duration 10 s. `bare`: accounts and money, default
parameters. Keys are deterministic: the private key of a name is SHA-256 of the name (`admin`, `validator`, `t0` …
`t19`, and `provider` of `scenario` and `bare`); on `devnet` the keys `provider` and `tenant` come from a mnemonic,
`provider-sub-1` … `provider-sub-4` are its next accounts. `GET /admin/keys` shows all of them.

Admin API (JSON; an error is `{"error": …}` with 400, 404, or 422 when the chain refuses the message)
--------------------------------------------------------------------------------------------------
    GET  /admin/info                     addresses, chain id, height, time, mode, provider_uuid, skus {name: uuid}
    GET  /admin/keys                     {name: {address, private_key_hex, mnemonic?, account_index?}}
    POST /admin/provider                 {address, payout_address?, api_url} → {uuid}
    POST /admin/sku                      {provider_uuid, name, unit: 1 (hour) or 2 (day),
                                         base_price: {denom, amount}} → {uuid}
    POST /admin/faucet                   {address, coins: [{denom, amount}]}
    POST /admin/credit                   {tenant, coins, as?} → {credit_address}
    POST /admin/credit/drain             {tenant, coins? | all: true}
    POST /admin/lease                    {tenant? | tenants?, items? | sku?, count?, payload? (text) | payload_base64? |
                                         meta_hash? (hex)} → {lease_uuids}; without tenant round robin over t0 … t19;
                                         `count` leases, 100 messages per transaction, all in one block
    POST /admin/lease/{uuid}/ack|reject|cancel|close|withdraw|domain    {as?, reason?, service_name?, custom_domain?}
    POST /admin/leases/ack|reject|cancel|close|withdraw                 {lease_uuids, as?, reason?}; 100 per transaction
    POST /admin/lease/{uuid}/expire      its creation moves back, so that the next block expires it; also
    POST /admin/leases/expire            {lease_uuids}
    POST /admin/lease/{uuid}/state       {state: number}: writes any number
    GET  /admin/lease/{uuid}             the lease as chain JSON
    POST /admin/params                   partial parameters of the billing module
    POST /admin/mode                     {mode: interval|instant|manual, interval?: seconds}
    POST /admin/blocks                   {count?, step?: seconds} → {height}: makes blocks now
    POST /admin/clock                    {advance: seconds} | {freeze: bool, step?: seconds}
    GET  /admin/state                    the whole state as JSON
    POST /admin/reset                    an empty chain, height 1, same chain id (a chain that was started again)
    GET  /admin/txs, /admin/mempool, /admin/calls; DELETE /admin/calls
    POST /admin/faults                   a rule → {id}; GET lists; DELETE /admin/faults/{id}, DELETE /admin/faults (all)

Messages sent by the admin API carry no signature and use no sequence and no fee; everything else about them is real.
They answer after their block (in `manual` mode they make it).

Fault rules `{effect, where?, times?, …}` (see `leases.chain.devchain.faults`): `grpc_error` {code, text}, `rpc_error`
{text}, `hang`, `delay` {ms}, `lose_request`, `lose_response`, `stale_reads` {blocks}, `index_lag` {blocks | ms},
`never_include`, `chain_error` {codespace, code, raw_log; where `chain:checktx` or `chain:exec`}, `lease_vanish` {uuid},
`empty_chain` {height?}, `gas_factor` {factor}, `gas_info_missing`, `catching_up`, `ws_close` {code}, `ws_drop`.
`where` is a glob over the gRPC method path
(`/liftedinit.billing.v1.Query/*`), an RPC method (`rpc:block_results`), `ws`, or `*`.
"""

from __future__ import annotations

from leases.chain.devchain.node import MODES, Limits, Node, Ports
from leases.chain.devchain.running import RunningDevchain, run, start, stop

__all__ = ["MODES", "Limits", "Node", "Ports", "RunningDevchain", "run", "start", "stop"]
