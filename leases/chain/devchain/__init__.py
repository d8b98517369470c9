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

`run(fixture=, chain_id=, block_mode=, block_interval=, ports=, profile=, min_gas_price=, state=, limits=)` yields a
`leases.chain.devchain.running.RunningDevchain`; its methods may be called from any thread.

`docs/devchain.md` tells the flags of the process, geneses and keys, profiles, the admin API with its command line, and
the faults.
"""

from __future__ import annotations

from leases.chain.devchain.node import MODES, Limits, Node, Ports
from leases.chain.devchain.running import RunningDevchain, run, start, stop

__all__ = ["MODES", "Limits", "Node", "Ports", "RunningDevchain", "run", "start", "stop"]
