"""What can go wrong between us and the chain, as types that say what to do next."""

from __future__ import annotations


class ChainError(Exception):
    """Something about the chain failed."""

    retry = False  # may the same call succeed later, unchanged?


class ChainUnavailable(ChainError):
    """The node gave no usable answer: nothing is known, a sent transaction may have arrived.

    `code` is the name of the gRPC status (`UNAVAILABLE`, `DEADLINE_EXCEEDED` …) or empty when there was none.
    """

    retry = True

    def __init__(self, reason: str, *, code: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code


class ListingIncomplete(ChainUnavailable):
    """A listing was cut by a lease that moved between two pages, several times in a row.

    The ledger finds the next page by the exact lease the cursor names; when that lease has left the listed state
    meanwhile the page is empty and looks like the last one.
    """


class CallRefused(ChainError):
    """The node understood the call and refused it; sending it again changes nothing.

    `code` is the name of the gRPC status (`INVALID_ARGUMENT`, `UNIMPLEMENTED` …).
    """

    def __init__(self, reason: str, *, code: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code


class AccountAbsent(ChainError):
    """The chain knows no account at this address: it was never funded."""

    retry = True  # somebody may fund it

    def __init__(self, address: str) -> None:
        super().__init__(f"account {address} not found")
        self.address = address


class AccountUnreadable(ChainError):
    """The account exists, but in a form without number and sequence that we could use."""


class SimulationRefused(ChainError):
    """The node ran the transaction in simulation and it failed there.

    `text` is the raw log with the place in the node's source cut off. Which failure it is, says
    `leases.chain.codes.simulated_failure`.
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class GasUnknown(ChainError):
    """The node answered a simulation without saying how much gas it took."""

    retry = True


class GasTooHigh(ChainError):
    """The estimate is above the configured cap; nothing was broadcast."""

    def __init__(self, *, estimated: int, cap: int) -> None:
        super().__init__(f"estimated gas {estimated} exceeds max_gas_limit {cap}")
        self.estimated = estimated
        self.cap = cap


class GasOverflow(ChainError):
    """A gas figure does not fit the integer the chain has for it."""


class TransactionFailed(ChainError):
    """The chain refused or failed a transaction. `codespace` and `code` decide what follows, the log is for people."""

    def __init__(self, *, code: int, codespace: str, raw_log: str, tx_hash: str = "") -> None:
        super().__init__(f"transaction failed (code {code}, codespace {codespace}): {raw_log}")
        self.code = code
        self.codespace = codespace
        self.raw_log = raw_log
        self.tx_hash = tx_hash


class StreamBroken(ChainError):
    """The event stream ended or cannot be trusted any more; connect again."""

    retry = True

    def __init__(self, reason: str, *, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


class RpcError(ChainError):
    """The node's RPC answered with an error member."""

    def __init__(self, *, code: int, message: str, data: str = "") -> None:
        super().__init__(f"rpc error {code}: {message}: {data}" if data else f"rpc error {code}: {message}")
        self.code = code
        self.message = message
        self.data = data


class ResultsNotYet(RpcError):
    """The newest height is known but its results are not stored yet; ask again."""

    retry = True


class ResultsPruned(RpcError):
    """The node no longer holds the results of this height."""


class KeyUnusable(ChainError):
    """A signing key is missing, malformed or not ours; the process must not start."""


class AddressInvalid(ChainError, ValueError):
    """This text is no address of the expected kind."""
