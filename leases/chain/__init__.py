"""The chain: everything between a fact on it and a value here. No Django inside.

| Module | Holds |
|---|---|
| `client` | `ChainClient`, the contract, and the facts it returns |
| `cosmos` | `CosmosClient`: that contract over gRPC |
| `channel` | the gRPC connection of a process |
| `configured` | the client, RPC and signer that the settings describe |
| `decode` | protobuf answers to facts |
| `errors` | what can go wrong, as types that say what to do next |
| `codes` | the chain's result codes and what each means for us |
| `keys` | mnemonic, derivation, private key, signature |
| `keyring` | the key files of the chain's command line tool |
| `ripemd160` | the digest inside addresses |
| `address` | bech32 and the address of a tenant's credit |
| `messages` | the messages we send, packed into `Any` |
| `tx` | bytes of a transaction: body, fee, sign document, signature, hash |
| `gas` | fee, adjustment, fall-back and the ladder after running out of gas |
| `signer` | one key, one chain: build, estimate, sign |
| `events` | events of a frame or of a block's results to `LeaseEvent` |
| `stream` | the WebSocket subscription, with reconnection |
| `rpc` | the node's HTTP RPC: block results, search, status |
| `proto` | the message definitions |
| `devchain` | a simulated chain that speaks all of this from the other side |
"""
