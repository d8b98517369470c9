"""What the chain refuses, and how it says so.

A refusal has a codespace, a code and a text. The text of a module error ends with the registered text of its code.
"""

from __future__ import annotations

BILLING = {
    1: "invalid parameters",
    2: "lease not found",
    3: "lease not active",
    4: "insufficient credit balance",
    5: "maximum leases per tenant reached",
    6: "unauthorized",
    8: "credit account not found",
    9: "invalid lease",
    10: "sku not found",
    11: "SKU not active",
    12: "provider not found",
    13: "provider not active",
    14: "mixed providers",
    15: "no withdrawable amount",
    16: "no items",
    17: "invalid quantity",
    18: "duplicate SKU",
    19: "invalid credit operation",
    20: "arithmetic overflow",
    21: "too many items",
    22: "lease not in pending state",
    23: "maximum pending leases reached",
    24: "invalid rejection reason",
    25: "invalid request",
    26: "invalid closure reason",
    27: "invalid meta hash",
    28: "invalid service name",
    29: "invalid custom domain",
    30: "custom domain already claimed",
    31: "lease state does not allow a domain edit",
    32: "lease item not found",
    33: "ambiguous lease item",
    34: "acknowledge deadline passed",
    35: "acknowledge would exceed the active lease limit",
    36: "reservation invariant broken",
    37: "lease query limit exceeded",
    38: "too many reservation denominations",
    39: "sequence exhausted",
    40: "internal corruption",
}
SKU = {
    1: "invalid SKU",
    2: "SKU not found",
    3: "unauthorized",
    4: "invalid configuration",
    5: "invalid provider",
    6: "provider not found",
    7: "invalid API URL",
}
SDK = {
    2: "tx parse error",
    4: "unauthorized",
    5: "insufficient funds",
    6: "unknown request",
    8: "invalid pubkey",
    9: "unknown address",
    11: "out of gas",
    12: "memo too large",
    13: "insufficient fee",
    15: "no signatures supplied",
    18: "invalid request",
    19: "tx already in mempool",
    20: "mempool is full",
    21: "tx too large",
    30: "tx timeout height",
    32: "incorrect account sequence",
}
AUTHZ = {2: "authorization not found"}

REGISTERED = {"billing": BILLING, "sku": SKU, "sdk": SDK, "authz": AUTHZ}


class Refused(Exception):
    """The chain refuses a transaction or a message: `codespace`, `code`, and `text` ending with the registered text."""

    def __init__(self, codespace: str, code: int, detail: str = "") -> None:
        registered = REGISTERED[codespace][code]
        self.codespace = codespace
        self.code = code
        self.text = f"{detail}: {registered}" if detail else registered
        super().__init__(self.text)

    @classmethod
    def with_text(cls, codespace: str, code: int, text: str) -> Refused:
        """A refusal exactly as given, of any codespace."""
        refusal = cls.__new__(cls)
        Exception.__init__(refusal, text)
        refusal.codespace, refusal.code, refusal.text = codespace, code, text
        return refusal

    def inside_message(self, index: int) -> str:
        """The raw log of a transaction whose message with this index was refused."""
        return f"failed to execute message; message index: {index}: {self.text}"


class QueryRefused(Exception):
    """A query is answered with a gRPC status: `status` is its name, `text` its details."""

    def __init__(self, status: str, text: str) -> None:
        self.status = status
        self.text = text
        super().__init__(text)
