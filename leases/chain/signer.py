"""One key on one chain: build, estimate and sign transactions.

A `Signer` holds no connection and no state: sequences belong to the rows of whoever sends (one open transaction per
signer). It is safe to share between threads.

    account = client.account(signer.address)
    messages = signer.in_providers_name(messages.acknowledge(signer.provider_address, uuids))
    estimate = signer.estimate(client, messages, account=account)
    signed = signer.sign(messages, account=estimate.account, gas_limit=estimate.gas_limit, timeout_height=head + 20)
    client.broadcast(signed.tx_bytes)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from google.protobuf.any_pb2 import Any as PackedAny

from leases.chain import address as addresses
from leases.chain import messages as build
from leases.chain import tx
from leases.chain.client import Account, ChainClient, Coin
from leases.chain.codes import SimulatedFailure, Verdict, simulated_failure
from leases.chain.errors import CallRefused, ChainError, ChainUnavailable, GasOverflow, GasUnknown, SimulationRefused
from leases.chain.gas import GasPolicy
from leases.chain.keys import SigningKey


class Role(StrEnum):
    """Whose money and whose rights a signer uses."""

    PROVIDER = "provider"
    SUB_SIGNER = "sub_signer"  # sends in the provider's name by grant


class GasSource(StrEnum):
    """Where a gas limit comes from; the label of `fred_chain_gas_simulation_total`."""

    SIMULATED = "simulated"
    FALLBACK = "fallback"


@dataclass(frozen=True, slots=True)
class Estimate:
    """How much gas to declare, and the account as it was read for it.

    After a fall-back the gas is only what the configuration allows: cut the transaction to what that carries.
    `error` says why the node was of no use.
    """

    gas_limit: int
    source: GasSource
    account: Account
    gas_used: int = 0
    error: str = ""


class WouldFail(ChainError):
    """Simulation shows that this transaction would fail now; nothing was broadcast and no fee was paid.

    With several leases in it the failure is about one of them: read them exactly before anything is concluded.
    """

    def __init__(self, failure: SimulatedFailure) -> None:
        super().__init__(failure.text)
        self.failure = failure


@dataclass(frozen=True, slots=True)
class Signer:
    """A key, what it may do, and how it pays."""

    key: SigningKey
    chain_id: str
    provider_address: str
    gas: GasPolicy = field(default_factory=GasPolicy)
    role: Role = Role.PROVIDER
    prefix: str = addresses.PREFIX
    index: int | None = None
    """Of a sub-signer, from 0: the key of `m/44'/118'/(index + 1)'/0/0`."""
    address: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "address", self.key.address(self.prefix))

    def in_providers_name(self, messages: Sequence[PackedAny]) -> list[PackedAny]:
        """Make messages of the provider sendable by this signer: a sub-signer wraps all of them in one `MsgExec`."""
        if self.role is Role.PROVIDER or not messages:
            return list(messages)
        return [build.execute(self.address, messages)]

    def simulation(self, messages: Sequence[PackedAny], *, sequence: int, timeout_height: int = 0) -> bytes:
        """Return the bytes that ask the node how much gas these messages take."""
        body = tx.body(messages, timeout_height=timeout_height)
        return tx.unsigned_for_simulation(self.key.public_key, body, sequence=sequence)

    def estimate(self, client: ChainClient, messages: Sequence[PackedAny], *, account: Account) -> Estimate:
        """Ask the node for the gas of these messages.

        A sequence that is not the committed one is read again, once. A node that does not answer, or whose text names
        no failure we know, gives the fall-back. Raises `WouldFail` when the failure is known, `GasTooHigh` when the
        estimate is above the cap, and what `ChainClient.account` raises.
        """
        try:
            return self._simulated(client, messages, account)
        except WouldFail as would:
            if would.failure.verdict is not Verdict.SEQUENCE:
                raise
        account = client.account(self.address)
        try:
            return self._simulated(client, messages, account)
        except WouldFail as would:
            if would.failure.verdict is not Verdict.SEQUENCE:
                raise
            return self._fallback(account, would)

    def sign(
        self,
        messages: Sequence[PackedAny],
        *,
        account: Account,
        gas_limit: int,
        timeout_height: int = 0,
        memo: str = "",
    ) -> tx.SignedTx:
        """Sign messages for this account number and sequence; the fee follows from the gas limit."""
        return tx.sign(
            self.key,
            tx.body(messages, memo=memo, timeout_height=timeout_height),
            chain_id=self.chain_id,
            account_number=account.number,
            sequence=account.sequence,
            gas_limit=gas_limit,
            fee=Coin(denom=self.gas.fee_denom, amount=self.gas.fee(gas_limit)),
            timeout_height=timeout_height,
        )

    def _simulated(self, client: ChainClient, messages: Sequence[PackedAny], account: Account) -> Estimate:
        """Simulate once."""
        try:
            used = client.simulate(self.simulation(messages, sequence=account.sequence))
        except SimulationRefused as refused:
            failure = simulated_failure(refused.text)
            if failure is None:
                return self._fallback(account, refused)
            raise WouldFail(failure) from refused
        except (ChainUnavailable, GasUnknown, CallRefused) as error:
            return self._fallback(account, error)
        try:
            gas = self.gas.estimated(used)
        except GasOverflow as error:
            return self._fallback(account, error)
        return Estimate(gas_limit=gas, source=GasSource.SIMULATED, account=account, gas_used=used)

    def _fallback(self, account: Account, error: Exception) -> Estimate:
        return Estimate(gas_limit=self.gas.fallback(), source=GasSource.FALLBACK, account=account, error=str(error))
