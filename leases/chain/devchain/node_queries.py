"""The node service: blocks, syncing, what the node is."""

from __future__ import annotations

from typing import Any

from leases.chain.devchain.blocks import CONSENSUS_HASH, EMPTY_HASH, PROPOSER, VALIDATORS_HASH, Block
from leases.chain.devchain.chain import Chain, View
from leases.chain.devchain.context import timestamp
from leases.chain.devchain.errors import QueryRefused
from leases.chain.devchain.keys import encode_address
from leases.chain.devchain.queries import Handler
from leases.chain.proto import (
    tendermint_p2p_pb2,
    tendermint_pb2,
    tendermint_types_pb2,
    tendermint_version_pb2,
)

COMET_VERSION = "0.38.19"
CHANNELS = "40202122233038606100"


def block_id(block_hash: bytes) -> tendermint_types_pb2.BlockID:
    """The id of a block with this hash; its one part has the hash of the hash."""
    if not block_hash:
        return tendermint_types_pb2.BlockID()
    parts = tendermint_types_pb2.PartSetHeader(total=1, hash=block_hash[::-1])
    return tendermint_types_pb2.BlockID(hash=block_hash, part_set_header=parts)


def _header_fields(chain: Chain, block: Block) -> dict[str, Any]:
    return {
        "version": tendermint_version_pb2.Consensus(block=11),
        "chain_id": chain.network,
        "height": block.height,
        "time": timestamp(block.time),
        "last_block_id": block_id(block.last_hash),
        "last_commit_hash": block.last_hash[::-1] or EMPTY_HASH,
        "data_hash": block.data_hash,
        "validators_hash": VALIDATORS_HASH,
        "next_validators_hash": VALIDATORS_HASH,
        "consensus_hash": CONSENSUS_HASH,
        "app_hash": block.app_hash,
        "last_results_hash": EMPTY_HASH,
        "evidence_hash": EMPTY_HASH,
    }


def _block_answer(chain: Chain, block: Block) -> dict[str, Any]:
    fields = _header_fields(chain, block)
    header = tendermint_types_pb2.Header(**fields, proposer_address=PROPOSER)
    proposer = encode_address(PROPOSER, "manifestvalcons")
    data = tendermint_types_pb2.Data(txs=[result.tx.raw for result in block.txs])
    evidence = tendermint_types_pb2.EvidenceList()
    commit = tendermint_types_pb2.Commit(height=block.height - 1, block_id=block_id(block.last_hash))
    if block.height > 1:
        commit.signatures.add(
            block_id_flag=tendermint_types_pb2.BLOCK_ID_FLAG_COMMIT,
            validator_address=PROPOSER,
            timestamp=timestamp(block.time),
            signature=block.last_hash * 2,
        )
    return {
        "block_id": block_id(block.hash),
        "block": tendermint_types_pb2.Block(header=header, data=data, evidence=evidence, last_commit=commit),
        "sdk_block": tendermint_pb2.Block(
            header=tendermint_pb2.Header(**fields, proposer_address=proposer),
            data=data,
            evidence=evidence,
            last_commit=commit,
        ),
    }


def _latest_block(chain: Chain, view: View, _request: bytes) -> bytes:
    answer = _block_answer(chain, chain.blocks[view.height])
    return tendermint_pb2.GetLatestBlockResponse(**answer).SerializeToString()


def _block_by_height(chain: Chain, _view: View, request: bytes) -> bytes:
    height = tendermint_pb2.GetBlockByHeightRequest.FromString(request).height
    block = chain.blocks.get(height)
    if block is None:
        raise QueryRefused("INVALID_ARGUMENT", "requested block height is bigger then the chain length")
    return tendermint_pb2.GetBlockByHeightResponse(**_block_answer(chain, block)).SerializeToString()


def _syncing(chain: Chain, _view: View, _request: bytes) -> bytes:
    late = chain.faults.find("catching_up") is not None
    return tendermint_pb2.GetSyncingResponse(syncing=late).SerializeToString()


def _node_info(chain: Chain, _view: View, _request: bytes) -> bytes:
    node = tendermint_p2p_pb2.DefaultNodeInfo(
        protocol_version=tendermint_p2p_pb2.ProtocolVersion(p2p=8, block=11),
        default_node_id=PROPOSER.hex(),
        listen_addr="tcp://0.0.0.0:26656",
        network=chain.network,
        version=COMET_VERSION,
        channels=bytes.fromhex(CHANNELS),
        moniker="devchain",
        other=tendermint_p2p_pb2.DefaultNodeInfoOther(tx_index="on", rpc_address="tcp://127.0.0.1:26657"),
    )
    version = tendermint_pb2.VersionInfo(name="manifest", app_name="manifestd", cosmos_sdk_version="v0.50.14")
    answer = tendermint_pb2.GetNodeInfoResponse(default_node_info=node, application_version=version)
    return answer.SerializeToString()


HANDLERS: dict[str, Handler] = {
    "GetLatestBlock": _latest_block,
    "GetBlockByHeight": _block_by_height,
    "GetSyncing": _syncing,
    "GetNodeInfo": _node_info,
}
