"""The chain's messages: definitions (`*.proto`) and the classes made from them (`*_pb2*.py`, never edited).

The definitions hold exactly the fields this product reads or writes, under the package names and field numbers of
the public chain (Cosmos SDK 0.50, CometBFT 0.38, the ledger's billing and sku modules), so every byte is compatible.
After a change: `python leases/chain/proto/generate.py`; a test compares definitions and classes.

All classes of a process share one descriptor pool. Do not install another package that defines the same names.
"""
